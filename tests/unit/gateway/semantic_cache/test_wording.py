import pytest

from tribar.gateway.semantic_cache.wording import same_words


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("How do I reset it?", "  how do i   reset it "),
        ("How do I reset it?!", "How Do I Reset It"),
        ("怎么退款？", "怎么退款"),
        ("ＡＰＩ　是什么？", "API 是什么"),
        ("don't worry", "Don't worry..."),
        ("caf\u0065\u0301", "caf\u00e9"),
        ("print(1)  \nprint(2)", "print(1)\nprint(2)"),
    ],
)
def test_the_same_words(a: str, b: str) -> None:
    assert same_words(a) == same_words(b)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("what is 5²", "what is 52"),
        ("what is 1½", "what is 11⁄2"),
        ("what is x₂", "what is x2"),
        ("what is 5!", "what is 5"),
        ("what does grep -v do", "what does grep -V do"),
        ("is vitamin a good", "is vitamin A good"),
        ("come to US", "come to us"),
        ("what is foo_Bar", "what is foo_bar"),
        ("is C2 above c2", "is c2 above c2"),
        ("if x:\n  y()\nz()", "if x:\n  y()\n  z()"),
        ("is it on", "is it not on"),
        ("?", "!"),
    ],
)
def test_other_words(a: str, b: str) -> None:
    """BUG-091: compatibility forms, code, factorials and acronyms are not a matter of spelling."""
    assert same_words(a) != same_words(b)


def test_idempotent() -> None:
    for text in ("How do I?", "ＡＢＣ！", "a\n b", "", "??", "US vs. us"):
        assert same_words(same_words(text)) == same_words(text)
