"""Only a whole known key is accepted, and no key can be read from what is stored or said."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from serve_app.auth import Identity, KeyRecord, KeyRing, load_records, make_key, require_admin
from serve_app.errors import Forbidden, SettingsError, Unauthorized
from serve_app.settings import KeySettings

KEY, RECORD = make_key("acme")
ADMIN_KEY, ADMIN_RECORD = make_key("ops", admin=True)
RING = KeyRing([RECORD, ADMIN_RECORD])


def refusal(authorization: str | None, ring: KeyRing = RING) -> Unauthorized:
    with pytest.raises(Unauthorized) as caught:
        ring.identify(authorization)
    return caught.value


def from_environment(value: str) -> tuple[KeyRecord, ...]:
    return load_records(KeySettings(keys_env="KEYS"), {"KEYS": value})


def keys_file(folder: Path, content: bytes) -> KeySettings:
    path = folder / "keys.json"
    path.write_bytes(content)
    return KeySettings(keys_file=str(path))


def test_a_known_key_identifies_its_tenant() -> None:
    assert RING.identify(f"Bearer {KEY}") == Identity("acme", admin=False)
    assert RING.identify(f"Bearer {ADMIN_KEY}") == Identity("ops", admin=True)


@pytest.mark.parametrize("form", ["bearer {}", "BEARER {}", "Bearer   {}", "Bearer {}  "])
def test_case_of_the_scheme_and_spaces_around_the_key_do_not_matter(form: str) -> None:
    assert RING.identify(form.format(KEY)).tenant == "acme"


@pytest.mark.parametrize(
    "header", [None, "", " ", "Bearer", "Bearer ", "Bearer    ", KEY, f"Basic {KEY}", f" {KEY}"]
)
def test_a_header_without_a_bearer_key_is_a_missing_key(header: str | None) -> None:
    assert refusal(header).code == "missing_api_key"


def test_no_prefix_and_no_suffix_of_a_key_is_accepted() -> None:
    for cut in range(1, len(KEY)):
        assert refusal(f"Bearer {KEY[:cut]}").code == "invalid_api_key"
        assert refusal(f"Bearer {KEY[cut:]}").code == "invalid_api_key"


def test_no_key_with_one_other_character_is_accepted() -> None:
    for position, character in enumerate(KEY):
        other = "a" if character != "a" else "b"
        assert refusal(f"Bearer {KEY[:position]}{other}{KEY[position + 1 :]}").code == "invalid_api_key"


@pytest.mark.parametrize(
    "wrong",
    [
        KEY + "x",
        "x" + KEY,
        KEY.upper(),
        f"{KEY} {KEY}",
        f"{KEY},{ADMIN_KEY}",
        RECORD.hash,
        RECORD.id,
        RECORD.salt,
    ],
)
def test_nothing_but_the_key_itself_is_accepted(wrong: str) -> None:
    assert refusal(f"Bearer {wrong}").code == "invalid_api_key"


@pytest.mark.parametrize("text", ["é", "\xff\xfe\x80", "ключ", "鍵" * 50, "👍", "\x00", KEY + "\u0301"])
def test_characters_beyond_ascii_are_an_unknown_key(text: str) -> None:
    assert refusal(f"Bearer {text}").code == "invalid_api_key"
    assert refusal(text).code == "missing_api_key"


def test_a_ring_without_keys_accepts_none() -> None:
    assert refusal(f"Bearer {KEY}", KeyRing([])).code == "invalid_api_key"


def test_a_refusal_tells_nothing_of_the_key_that_was_sent() -> None:
    wrong = "pk-000000000000-guessed-secret"
    for error in (refusal(f"Bearer {wrong}"), refusal(f"Basic {wrong}"), refusal(wrong)):
        said = f"{error!r} {error.body()!r} {error.headers} {error.__cause__!r} {error.__context__!r}"
        assert "guessed" not in said
        assert error.headers == {"www-authenticate": "Bearer"}


def test_a_record_holds_no_part_of_the_secret() -> None:
    secret = KEY.split("-", 2)[2]
    stored = f"{msgspec.json.encode(RECORD)!r} {RECORD!r}"
    pieces = [secret[start : start + 6] for start in range(len(secret) - 5)]
    assert not [piece for piece in pieces if piece in stored]
    assert f"pk-{RECORD.id}-" in KEY


def test_two_keys_of_one_tenant_have_nothing_secret_in_common() -> None:
    keys, records = zip(*(make_key("t") for _ in range(20)), strict=True)
    assert len(set(keys)) == len({record.salt for record in records}) == len({r.hash for r in records}) == 20
    assert all(len(key) > 50 for key in keys)


def test_a_new_key_may_not_administer_unless_asked_for() -> None:
    assert (RECORD.admin, ADMIN_RECORD.admin) == (False, True)


def test_an_admin_may_administer_and_nobody_else() -> None:
    require_admin(Identity("ops", admin=True))
    with pytest.raises(Forbidden) as caught:
        require_admin(Identity("admin", admin=False))
    assert caught.value.code == "admin_only"


def test_records_written_to_a_file_are_read_back(tmp_path: Path) -> None:
    settings = keys_file(tmp_path, msgspec.json.encode([RECORD, ADMIN_RECORD]))
    assert load_records(settings, {}) == (RECORD, ADMIN_RECORD)


def test_a_record_in_a_file_is_no_admin_unless_it_says_so(tmp_path: Path) -> None:
    fields = msgspec.to_builtins(RECORD)
    del fields["admin"]
    (record,) = load_records(keys_file(tmp_path, msgspec.json.encode([fields])), {})
    assert record.admin is False


def test_keys_in_the_environment_are_accepted() -> None:
    ring = KeyRing(from_environment(" acme = one=1 , beta=two,, admin=three,"))
    assert ring.identify("Bearer one=1") == Identity("acme", admin=False)
    assert ring.identify("Bearer two") == Identity("beta", admin=False)
    assert ring.identify("Bearer three") == Identity("admin", admin=True)
    for wrong in ("acme=one=1", "one", "acme", "one=1 , beta=two"):
        assert refusal(f"Bearer {wrong}", ring).code == "invalid_api_key"


def test_one_tenant_may_have_several_keys() -> None:
    ring = KeyRing(from_environment("t=old,t=new"))
    assert ring.identify("Bearer old") == ring.identify("Bearer new") == Identity("t", admin=False)


def test_records_from_the_environment_are_the_same_in_every_process_and_hold_no_key() -> None:
    assert from_environment("acme=topsecret") == from_environment("acme=topsecret")
    assert "topsecret" not in repr(from_environment("acme=topsecret"))


def test_one_key_of_two_tenants_is_stored_as_two_hashes() -> None:
    one, other = from_environment("acme=same,beta=same")
    assert one.hash != other.hash


def test_both_sources_are_used(tmp_path: Path) -> None:
    file = keys_file(tmp_path, msgspec.json.encode([RECORD])).keys_file
    ring = KeyRing(load_records(KeySettings(keys_file=file, keys_env="KEYS"), {"KEYS": "beta=two"}))
    assert ring.identify(f"Bearer {KEY}").tenant == "acme"
    assert ring.identify("Bearer two").tenant == "beta"


@pytest.mark.parametrize(
    "value", ["", ",", "topsecret", "=topsecret", "a=", "a=topsecret,b", " = topsecret", "a= "]
)
def test_a_variable_that_holds_no_pairs_is_named_but_not_shown(value: str) -> None:
    with pytest.raises(SettingsError) as caught:
        from_environment(value)
    assert "auth.keys_env = 'KEYS'" in str(caught.value)
    assert "topsecret" not in repr(caught.value)


def test_a_variable_that_is_not_set_is_named() -> None:
    with pytest.raises(SettingsError, match=r"auth\.keys_env = 'KEYS'"):
        load_records(KeySettings(keys_env="KEYS"), {"OTHER": "a=b"})


def test_a_variable_with_bytes_that_are_no_utf8_is_named() -> None:
    undecodable = b"a=topsecret\xff".decode("utf-8", "surrogateescape")  # as os.environ gives it
    with pytest.raises(SettingsError, match=r"auth\.keys_env = 'KEYS'"):
        from_environment(undecodable)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"{}",
        b"\xff",
        b"[1]",
        b'[{"id":"topsecret"}]',
        b'[{"id":"a","tenant":"topsecret","salt":"s","hash":1}]',
        b'[{"id":"a","tenant":"t","salt":"s","hash":"h","colour":"topsecret"}]',
        b'[{"id":"a","tenant":"t","salt":"s","hash":"h","admin":"topsecret"}]',
        b'[{"id":"topsecret \xff","tenant":"t","salt":"s","hash":"h"}]',
    ],
)
def test_a_file_that_is_no_keys_file_is_named_but_not_shown(tmp_path: Path, content: bytes) -> None:
    settings = keys_file(tmp_path, content)
    with pytest.raises(SettingsError) as caught:
        load_records(settings, {})
    assert repr(settings.keys_file) in str(caught.value)
    assert "scripts/make_key.py" in str(caught.value)
    assert "topsecret" not in str(caught.value)


def test_a_file_that_is_missing_or_a_folder_is_named(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "absent.json"):
        with pytest.raises(SettingsError) as caught:
            load_records(KeySettings(keys_file=str(path)), {})
        assert repr(str(path)) in str(caught.value)
