"""Split-KV: into how many parts the keys of a decoding step are cut, and where the cuts are.

Pure arithmetic on shapes, shared by the kernels (which launch the parts) and by the models (which predict
their bytes and their schedule).
"""

MIN_KEYS = 512  # up to here a second kernel costs more than splitting saves
KEYS_OF_A_SPLIT = 128  # at least
FULL = 0.95  # of the fullest waves is full enough


def choose_splits(batch, kv_heads, row_blocks, keys, sms):
    """Into how many parts the keys are split: from shapes and the number of SMs only.

    The smallest number whose waves are about as full as they can be with at most two programs on an SM; 1 if
    there are programs enough without splitting, or few keys. `row_blocks`: tiles of packed query rows.
    """
    programs = batch * kv_heads * row_blocks
    if programs == 0 or programs >= sms or keys <= MIN_KEYS:
        return 1
    most = max(1, min(2 * sms // programs, keys // KEYS_OF_A_SPLIT))

    def fullness(splits):
        return splits * programs / (-(-splits * programs // sms) * sms)

    best = max(map(fullness, range(1, most + 1)))
    return next(splits for splits in range(1, most + 1) if fullness(splits) >= FULL * best)


def part_of(length, split, num_splits, block_k):
    """(start, end) of the keys of one split: whole key blocks as far as there are keys; maybe none."""
    keys = -(-length // num_splits)
    keys = -(-keys // block_k) * block_k
    start = min(split * keys, length)
    return start, min(start + keys, length)


def rows_of_tile(rows, block_q):
    """Rows of a decoding tile: the power of two that holds `rows`, at least 16, at most block_q."""
    return min(block_q, max(16, 1 << max(rows - 1, 0).bit_length()))
