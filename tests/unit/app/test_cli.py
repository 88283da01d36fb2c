"""The command line: flags from the declarations, one-line mistakes."""

import pytest

from tribar.app.cli import main
from tribar.app.settings import options


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    captured = capsys.readouterr()
    assert isinstance(ended.value.code, int)
    return ended.value.code, captured.out, captured.err


def test_help_shows_every_flag(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    code, out, err = run(capsys, "serve", "--help")
    assert (code, err) == (0, "")
    for option in options().values():
        assert f"{option.flag} " in out


def test_help_has_examples(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "--help")
    assert code == 0
    assert "tribar serve model.gguf --port 9000" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("serv",), "error: No such command 'serv'"),
        (("serve", "--prt", "3"), "error: No such option: --prt"),
        (("serve", "--port", "x"), "error: --port: expected a whole number"),
        (("serve", "a", "--model", "b"), "error: two models: a and --model b"),
        (("serve", "--config", "absent.toml"), "error: absent.toml: No such file"),
        (("pull",), "error: Missing argument 'MODEL'"),
    ],
)
def test_mistakes_are_one_line_and_exit_2(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], message: str
) -> None:
    code, out, err = run(capsys, *arguments)
    assert (code, out) == (2, "")
    assert err.startswith(message)
    assert len(err.splitlines()) <= 2


def test_an_unknown_variable_of_ours_is_a_mistake(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRIBAR_PROT", "1")
    assert run(capsys, "serve", "x") == (
        2,
        "",
        "error: unknown environment variable TRIBAR_PROT; did you mean TRIBAR_PORT?\n",
    )


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    import tribar

    assert run(capsys, "version") == (0, f"{tribar.__version__}\n", "")
