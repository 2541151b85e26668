"""Make an API key: print it once, and append its salted hash to a keys file.

python scripts/make_key.py TENANT [--file config/keys.json] [--admin]
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path

import msgspec

from serve_app.auth import KeyRecord, make_key


def append(path: Path, record: KeyRecord) -> None:
    """Add a record; the file is replaced whole, readable by its owner only."""
    records = msgspec.json.decode(path.read_bytes(), type=list[KeyRecord]) if path.exists() else []
    encoded = msgspec.json.format(msgspec.json.encode([*records, record]), indent=2)
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=".keys-")  # mode 0600
    with os.fdopen(descriptor, "wb") as file:
        file.write(encoded + b"\n")
    Path(temporary).replace(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("tenant", help="whose key it is; tenants never share cache entries")
    parser.add_argument("--file", type=Path, default=Path("config/keys.json"))
    parser.add_argument("--admin", action="store_true", help="may use /admin/*")
    arguments = parser.parse_args()
    key, record = make_key(arguments.tenant, admin=arguments.admin)
    append(arguments.file, record)
    print(key)


if __name__ == "__main__":
    main()
