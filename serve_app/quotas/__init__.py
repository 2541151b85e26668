"""Limits and budgets that hold over many gateways. One ledger (``ledger.py``, in the deployment `accounts`)
owns what may still be used; it grants parts of it, *slices*, to gateways, whose books (``book.py``) reserve
from them without waiting."""
