"""What the first hour on a GPU must show: the checks of ``scripts/check_gpu.py``, and what runs them."""
