"""What the course asks: the data of each lesson (lessons/*.toml), how an answer is read and compared, how far
one has come.
"""
