"""Only a whole known key is accepted, and no key can be read from what is stored or said."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from serve_app.api.roles import ADMINS, Role
from serve_app.errors import Forbidden, SettingsError, Unauthorized
from serve_app.request.auth import (
    Identity,
    KeyRing,
    KeySources,
    hash_key,
    load_keys,
    make_key,
    require_role,
)
from serve_app.settings import KeySettings

KEY, RECORD = make_key("acme")
ADMIN_KEY, ADMIN_RECORD = make_key("ops", admin=True)
RING = KeyRing([RECORD, ADMIN_RECORD])
LONG = "long-enough-to-be-a-key"
"""Twenty characters at least, and no key of ours."""


def refusal(authorization: str | None, ring: KeyRing = RING) -> Unauthorized:
    with pytest.raises(Unauthorized) as caught:
        ring.identify(authorization)
    return caught.value


def from_environment(value: str) -> KeySources:
    return load_keys(KeySettings(keys_env="KEYS"), {"KEYS": value})


def keys_file(folder: Path, content: bytes) -> KeySettings:
    path = folder / "keys.json"
    path.write_bytes(content)
    return KeySettings(keys_file=str(path))


def test_a_known_key_identifies_its_tenant() -> None:
    assert RING.identify(f"Bearer {KEY}") == Identity("acme", key_id=RECORD.id)
    assert RING.identify(f"Bearer {ADMIN_KEY}") == Identity("ops", Role.ADMIN, key_id=ADMIN_RECORD.id)


@pytest.mark.parametrize("form", ["bearer {}", "BEARER {}", "Bearer   {}", "Bearer {}  "])
def test_case_of_the_scheme_and_spaces_around_the_key_do_not_matter(form: str) -> None:
    assert RING.identify(form.format(KEY)).tenant == "acme"


@pytest.mark.parametrize(
    "header", [None, "", " ", "Bearer", "Bearer ", "Bearer    ", "{key}", "Basic {key}", " {key}"]
)
def test_a_header_without_a_bearer_key_is_a_missing_key(header: str | None) -> None:
    assert refusal(header and header.format(key=KEY)).code == "missing_api_key"


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
    ids=["longer", "behind", "upper", "twice", "two", "hash", "id", "salt"],
)
def test_nothing_but_the_key_itself_is_accepted(wrong: str) -> None:
    assert refusal(f"Bearer {wrong}").code == "invalid_api_key"


@pytest.mark.parametrize(
    "text", ["é", "\xff\xfe\x80", "ключ", "鍵" * 50, "👍", "\x00", pytest.param(KEY + "\u0301", id="accent")]
)
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
    require_role(Identity("ops", Role.ADMIN), ADMINS)
    for role in set(Role) - {Role.ADMIN}:
        with pytest.raises(Forbidden) as caught:
            require_role(Identity("admin", role), ADMINS)
    assert caught.value.code == "admin_only"


def test_records_written_to_a_file_are_read_back(tmp_path: Path) -> None:
    settings = keys_file(tmp_path, msgspec.json.encode([RECORD, ADMIN_RECORD]))
    assert load_keys(settings, {}).in_file == (RECORD, ADMIN_RECORD)


def test_a_record_in_a_file_is_no_admin_unless_it_says_so(tmp_path: Path) -> None:
    fields = msgspec.to_builtins(RECORD)
    del fields["admin"]
    (record,) = load_keys(keys_file(tmp_path, msgspec.json.encode([fields])), {}).in_file
    assert record.admin is False


def test_keys_in_the_environment_are_accepted() -> None:
    one, two, three = f"{LONG}=1", f"{LONG}2", f"{LONG}3"
    ring = from_environment(f" acme = {one} , beta={two},, admin={three},").ring()
    assert ring.identify(f"Bearer {one}") == Identity("acme", key_id="env-acme")
    assert ring.identify(f"Bearer {two}") == Identity("beta", key_id="env-beta")
    assert ring.identify(f"Bearer {three}") == Identity("admin", Role.ADMIN, key_id="env-admin")
    for wrong in (f"acme={one}", LONG, "acme", f"{one} , beta={two}"):
        assert refusal(f"Bearer {wrong}", ring).code == "invalid_api_key"


def test_a_key_of_ours_may_be_given_by_environment() -> None:
    assert from_environment(f"acme={KEY}").ring().identify(f"Bearer {KEY}").tenant == "acme"


def test_one_tenant_may_have_several_keys() -> None:
    ring = from_environment(f"t={LONG}old,t={LONG}new").ring()
    same = Identity("t", key_id="env-t")
    assert ring.identify(f"Bearer {LONG}old") == ring.identify(f"Bearer {LONG}new") == same


def test_records_from_the_environment_are_the_same_in_every_process_and_hold_no_key() -> None:
    value = f"acme=topsecret{LONG}"
    assert from_environment(value) == from_environment(value)
    assert "topsecret" not in repr(from_environment(value))


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (f"acme={LONG},beta={LONG}", "two tenants have the same key"),
        ("acme=topsecret", "a key of tenant 'acme' has 9 characters: expected 20 to 256"),
        (f"acme=topsecret{'x' * 300}", "a key of tenant 'acme' has 309 characters"),
        (f"a b={LONG}topsecret", "no tenant's name"),
        (f"../up={LONG}topsecret", "no tenant's name"),
        (f"{'t' * 65}={LONG}topsecret", "no tenant's name"),
        (f"acme={LONG}\N{LATIN SMALL LETTER E WITH ACUTE}topsecret", "not ASCII"),
    ],
)
def test_a_weak_or_doubtful_pair_is_refused_without_showing_a_key(value: str, problem: str) -> None:
    with pytest.raises(SettingsError, match=r"auth\.keys_env = 'KEYS'") as caught:
        from_environment(value)
    assert problem in str(caught.value)
    assert "topsecret" not in str(caught.value)


def test_both_sources_are_used(tmp_path: Path) -> None:
    file = keys_file(tmp_path, msgspec.json.encode([RECORD])).keys_file
    ring = load_keys(KeySettings(keys_file=file, keys_env="KEYS"), {"KEYS": f"beta={LONG}"}).ring()
    assert ring.identify(f"Bearer {KEY}").tenant == "acme"
    assert ring.identify(f"Bearer {LONG}").tenant == "beta"


def test_a_look_up_computes_the_same_for_one_record_and_for_many() -> None:
    given = from_environment(",".join(f"t{n}={LONG}{n}" for n in range(300))).given
    records = [make_key("many")[1] for _ in range(300)]
    hashed: list[str] = []

    def compute(key: str, salt: str) -> str:
        hashed.append(key)
        return hash_key(key, salt)

    def cost(ring: KeyRing, key: str) -> int:
        hashed.clear()
        refusal(f"Bearer {key}", ring)
        return len(hashed)

    small = KeyRing([RECORD], given=given[:1], compute=compute)
    large = KeyRing(records, given=given, compute=compute)
    for key in ("unknown", f"pk-{RECORD.id}-{'x' * 43}", f"pk-{records[0].id}-x", "pk--"):
        assert cost(small, key) == cost(large, key) == 2


def test_nothing_is_computed_from_a_bearer_that_is_too_long() -> None:
    given = from_environment(f"acme={LONG}").given
    ring = KeyRing([RECORD], given=given, compute=lambda key, salt: pytest.fail("it was hashed"))
    assert refusal(f"Bearer {KEY}{'x' * 12_000}", ring).code == "invalid_api_key"


@pytest.mark.parametrize("name", ["", "a b", "../up", "-a", "a\n", "a/b", "t" * 65, "naïve", 'a"b'])
def test_a_tenant_has_a_plain_name(name: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no tenant's name"):
        make_key(name)
    fields = msgspec.to_builtins(RECORD) | {"tenant": name}
    with pytest.raises(SettingsError, match="regex"):
        load_keys(keys_file(tmp_path, msgspec.json.encode([fields])), {})


def test_two_records_of_one_id_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=f"two records have the id '{RECORD.id}'"):
        load_keys(keys_file(tmp_path, msgspec.json.encode([RECORD, RECORD])), {})


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
        load_keys(KeySettings(keys_env="KEYS"), {"OTHER": "a=b"})


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
        load_keys(settings, {})
    assert repr(settings.keys_file) in str(caught.value)
    assert "scripts/make_key.py" in str(caught.value)
    assert "topsecret" not in str(caught.value)


def test_a_file_that_is_missing_or_a_folder_is_named(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "absent.json"):
        with pytest.raises(SettingsError) as caught:
            load_keys(KeySettings(keys_file=str(path)), {})
        assert repr(str(path)) in str(caught.value)
