"""flashlab's kernels inside other libraries. `hf`: Hugging Face Transformers (extra "hf")."""
