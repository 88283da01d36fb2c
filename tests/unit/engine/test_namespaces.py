import itertools
from dataclasses import replace

from tests.unit.engine.client_rig import CARD

from tribar.engine.namespaces import Namespaces


def test_tenants_adapters_and_versions_never_share_a_namespace() -> None:
    """BUG-030: nor do neighbours whose concatenations are equal."""
    namespaces = Namespaces()
    cards = [CARD, replace(CARD, name="m2"), replace(CARD, created_s=5)]
    asked = list(itertools.product(["", "a", "ab", "\ud800"], ["", "b", "ab"], cards))
    digests = [namespaces.digest(*each) for each in asked]
    assert len(set(digests)) == len(asked)
    assert digests == [namespaces.digest(*each) for each in asked]
    assert {len(digest) for digest in digests} == {16}


def test_another_server_uses_other_namespaces_unless_the_secret_is_shared() -> None:
    assert Namespaces().digest("a", "", CARD) != Namespaces().digest("a", "", CARD)
    assert Namespaces(b"s").digest("a", "", CARD) == Namespaces(b"s").digest("a", "", CARD)
