"""What claims mean: tenant, user, models, role; and claims of a wrong type, or not known to the settings."""

from __future__ import annotations

from typing import Any

import pytest
from support.identity_provider import AUDIENCE, ISSUER, claims

from serve_app.api.roles import Role
from serve_app.settings.sign_in import OidcSettings
from serve_app.sign_in.claims import NotMapped, identity_of
from serve_app.sign_in.verified import VerifiedTokens


def settings(**changed: Any) -> OidcSettings:
    given = {"issuer": ISSUER, "audiences": [AUDIENCE], "tenant_claim": "team"}
    return OidcSettings(**{name: value for name, value in (given | changed).items() if value is not None})


def refused(given: dict[str, Any], **changed: Any) -> str:
    with pytest.raises(NotMapped) as caught:
        identity_of(given, settings(**changed), 5.0)
    assert caught.value.status == 403
    return caught.value.message


def test_a_claim_names_the_tenant_and_the_subject_is_the_user() -> None:
    found = identity_of(claims(), settings(), 5.0)
    assert (found.tenant, found.user, found.role, found.models) == ("maths", "ada", Role.USER, None)
    assert (found.expires_at, found.key_id, found.admin) == (5.0, None, False)


def test_everyone_may_be_of_one_tenant() -> None:
    assert identity_of(claims(), settings(tenant_claim=None, tenant="all"), 5.0).tenant == "all"


def test_groups_are_mapped_to_one_tenant() -> None:
    known = {"tenant_claim": "groups", "tenants": {"g-1": "maths", "g-2": "maths", "g-3": "physics"}}
    assert identity_of(claims(groups=["staff", "g-1", "g-2"]), settings(**known), 5.0).tenant == "maths"
    assert "more than one tenant" in refused(claims(groups=["g-1", "g-3"]), **known)
    assert "names no tenant" in refused(claims(groups=["staff"]), **known)


@pytest.mark.parametrize("team", [None, [], ["a", "b"], "", "a b", "../x", "a\n", "é", "x" * 65, "-x"])
def test_a_tenant_that_is_missing_or_not_allowed_is_refused(team: Any) -> None:
    said = refused(claims(team=team))
    assert "`team`" in said


@pytest.mark.parametrize("team", [7, True, {"name": "maths"}, ["maths", 7], [["maths"]], 1.5])
def test_a_tenant_of_a_wrong_type_is_refused(team: Any) -> None:
    assert "no text and no list of texts (auth.oidc.tenant_claim)" in refused(claims(team=team))


@pytest.mark.parametrize("sub", [None, "", 7, ["ada"], "a\nb", "x" * 257])
def test_a_user_must_be_named(sub: Any) -> None:
    assert "names no user" in refused(claims(sub=sub))


def test_a_path_leads_into_objects_and_an_address_is_taken_whole() -> None:
    given = claims(realm_access={"roles": ["boss"]}, **{"https://x.example/a.b": "physics"})
    found = identity_of(
        given,
        settings(
            tenant_claim="https://x.example/a.b", role_claim="realm_access.roles", roles={"boss": "admin"}
        ),
        5.0,
    )
    assert (found.tenant, found.role) == ("physics", Role.ADMIN)


@pytest.mark.parametrize(
    ("groups", "role"),
    [
        (["leads", "auditors"], Role.TENANT_ADMIN),
        (["platform", "leads"], Role.ADMIN),
        ("auditors", Role.VIEWER),
        (["admin"], Role.USER),
        (None, Role.USER),
    ],
)
def test_the_role_with_most_rights_counts(groups: Any, role: Role) -> None:
    rules = {"platform": "admin", "leads": "tenant_admin", "auditors": "viewer"}
    given = claims(groups=groups, role="admin", roles=["admin"])
    assert identity_of(given, settings(role_claim="groups", roles=rules), 5.0).role is role


def test_a_claim_that_the_settings_do_not_name_gives_nothing() -> None:
    given = claims(admin=True, role="admin", roles=["admin"], groups=["admin"], tenant="other", models=["x"])
    found = identity_of(given, settings(), 5.0)
    assert (found.tenant, found.role, found.models) == ("maths", Role.USER, None)


@pytest.mark.parametrize("groups", [7, {"a": 1}, [1], ["a"] * 1001])
def test_roles_of_a_wrong_type_are_refused(groups: Any) -> None:
    assert "auth.oidc.role_claim" in refused(claims(groups=groups), role_claim="groups", roles={})


def test_models_are_those_of_the_claim() -> None:
    listed = settings(models_claim="models")
    assert identity_of(claims(models=["a", "b", "a"]), listed, 5.0).models == ("a", "b")
    assert identity_of(claims(models="a"), listed, 5.0).models == ("a",)
    assert identity_of(claims(), listed, 5.0).models == (), "no claim: no model"
    assert "auth.oidc.models_claim" in refused(claims(models={"a": True}), models_claim="models")


def test_a_token_is_remembered_until_it_expires_and_no_longer() -> None:
    known = VerifiedTokens(2)
    identity = identity_of(claims(), settings(), 5.0)
    known.add("one", identity)
    assert known.find("one", 4.9) is identity
    assert known.find("one", 5.0) is None
    assert known.find("one", 4.0) is None, "a clock that goes back brings nothing back"


def test_the_token_that_was_used_longest_ago_is_forgotten_first() -> None:
    known = VerifiedTokens(2)
    identity = identity_of(claims(), settings(), 5.0)
    known.add("one", identity)
    known.add("two", identity)
    assert known.find("one", 1.0)
    known.add("three", identity)
    assert (known.find("two", 1.0), known.find("one", 1.0)) == (None, identity)
    known.clear()
    assert known.find("one", 1.0) is None
