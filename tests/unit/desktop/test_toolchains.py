"""Which of a person's programs commands may use: where they lie, what beside them stays closed, and the order."""

import os
from pathlib import Path

import pytest

from desktop import toolchains
from desktop.toolchains import found
from runtime_host.programs import Toolchains

USUAL = ("/usr/local/bin", "/usr/bin", "/bin")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(toolchains, "_OF_ALL", ())
    place = tmp_path.resolve() / "home"
    place.mkdir(mode=0o700)
    return place


def make(home: Path, *programs: str) -> None:
    for program in programs:
        file = home / program
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
        file.write_text("#!/bin/sh\n", encoding="utf-8")
        file.chmod(0o755)


def look(home: Path, *path: str, hidden: tuple[str, ...] = ()) -> Toolchains:
    return found({"HOME": str(home), "PATH": os.pathsep.join(path)}, hidden=hidden)


def below(home: Path, places: tuple[str, ...]) -> list[str]:
    """Those in the home, by their names in it."""
    return [str(Path(place).relative_to(home)) for place in places if place.startswith(str(home))]


def test_programs_are_found_and_what_lies_beside_them_is_not(home: Path) -> None:
    make(
        home,
        ".nvm/versions/node/v20.1.0/bin/node",
        ".cargo/bin/rg",
        ".cargo/credentials.toml",
        ".ssh/id_ed25519",
        ".local/bin/tool",
        ".local/share/uv/python/cpython-3.13.1-linux-x86_64-gnu/bin/python3.13",
        ".local/share/uv/credentials/secret",
        ".sdkman/candidates/java/21.0.2-tem/bin/java",
        "go/bin/gopls",
        "go/src/private/secret.go",
    )
    seen = look(home)
    assert sorted(below(home, seen.readable)) == [
        ".cargo/bin",
        ".local/bin",
        ".local/share/uv/python/cpython-3.13.1-linux-x86_64-gnu",
        ".nvm/versions/node/v20.1.0",
        ".sdkman/candidates/java/21.0.2-tem",
        "go/bin",
    ]
    assert look(home / "elsewhere") == Toolchains((), USUAL)


def test_settings_that_may_hold_a_key_are_left_out_of_what_is_shown(home: Path) -> None:
    node, python = ".nvm/versions/node/v20.1.0", ".pyenv/versions/3.12.1"
    make(home, f"{node}/bin/node", f"{node}/lib/x.js", f"{node}/etc/npmrc", f"{node}/.npmrc")
    make(home, f"{python}/bin/python", f"{python}/lib/x.py", f"{python}/pip.conf")
    make(home, ".npm-global/bin/tsc", ".npm-global/lib/tsc.js", ".npm-global/etc/npmrc")
    assert sorted(below(home, look(home).readable)) == [
        ".npm-global/bin", ".npm-global/lib", f"{node}/bin", f"{node}/lib", f"{python}/bin", f"{python}/lib",
    ]  # fmt: skip


def test_the_order_is_the_persons_then_the_usual_one_then_the_newest_of_what_is_not_named(home: Path) -> None:
    make(
        home,
        ".nvm/versions/node/v9.11.0/bin/node",
        ".nvm/versions/node/v20.1.0/bin/node",
        ".nvm/versions/node/v18.2.0/bin/node",
        ".local/bin/tool",
        "bin/own",
        "project/bin/own",
    )
    newest, older = f"{home}/.nvm/versions/node/v20.1.0/bin", f"{home}/.nvm/versions/node/v18.2.0/bin"
    local = f"{home}/.local/bin"
    assert look(home, "/usr/bin").path == ("/usr/bin", "/usr/local/bin", "/bin", local, newest)
    # A version that the person chose is the one; what cannot be seen is not looked through.
    named = ("bin", f"{home}/bin", f"{home}/project/bin", older, "/usr/bin", local, "/nonexistent")
    assert look(home, *named).path == (older, "/usr/bin", local, "/usr/local/bin", "/bin")


def test_a_link_on_the_path_counts_as_what_it_leads_to(home: Path) -> None:
    make(home, ".sdkman/candidates/java/21.0.2-tem/bin/java", "secrets/bin/x")
    (home / ".sdkman/candidates/java/current").symlink_to("21.0.2-tem")
    (home / "link").symlink_to("secrets")
    seen = look(home, f"{home}/.sdkman/candidates/java/current/bin", f"{home}/link/bin")
    assert seen.path == (f"{home}/.sdkman/candidates/java/21.0.2-tem/bin", *USUAL)
    assert below(home, seen.readable) == [".sdkman/candidates/java/21.0.2-tem"]


def test_before_the_stand_ins_of_rustup_comes_the_chosen_toolchain(home: Path) -> None:
    stable, nightly = (f".rustup/toolchains/{name}-x86_64-unknown-linux-gnu" for name in ("stable", "nightly"))
    make(home, ".cargo/bin/cargo", f"{stable}/bin/cargo", f"{nightly}/bin/cargo")
    for chosen, wanted in (("", stable), (nightly, nightly), ("gone", stable), ("= no toml", stable)):
        name = chosen.rpartition("/")[2]
        said = name if name.startswith("=") else f'default_toolchain = "{name}"'
        (home / ".rustup/settings.toml").write_text(said, encoding="utf-8")
        path = look(home, f"{home}/.cargo/bin", "/usr/bin").path
        assert path[:3] == (f"{home}/{wanted}/bin", f"{home}/.cargo/bin", "/usr/bin")
        assert f"{home}/.rustup/settings.toml" not in look(home).readable


@pytest.mark.parametrize("linked", [".nvm", ".nvm/versions/node", ".nvm/versions/node/v20.1.0", ".cargo/bin"])
def test_no_link_on_the_way_is_followed(home: Path, linked: str) -> None:
    """A command that works in such a folder could have made it."""
    make(home, ".ssh/bin/x", ".ssh/v20.1.0/bin/node", ".ssh/versions/node/v20.1.0/bin/node")
    (home / linked).parent.mkdir(parents=True, exist_ok=True)
    (home / linked).symlink_to(home / ".ssh")
    assert look(home, f"{home}/{linked}/bin") == Toolchains((), USUAL)


def test_a_home_that_is_reached_over_a_link_is_one(home: Path) -> None:
    make(home, ".cargo/bin/rg")
    link = home.parent / "link"
    link.symlink_to(home)
    assert look(link).readable == (f"{home}/.cargo/bin",)


def test_what_others_can_change_is_not_used(home: Path) -> None:
    make(home, ".cargo/bin/rg", ".nvm/versions/node/v20.1.0/bin/node", ".local/bin/tool")
    (home / ".cargo/bin").chmod(0o777)
    (home / ".nvm/versions").chmod(0o777)
    assert below(home, look(home).readable) == [".local/bin"]


@pytest.mark.parametrize("hidden", [".local/bin", ".local", ".local/bin/data", "."])
def test_nothing_that_meets_a_hidden_folder_is_shown(home: Path, hidden: str) -> None:
    make(home, ".local/bin/data/secret")
    assert look(home, f"{home}/.local/bin", hidden=(os.path.normpath(home / hidden),)) == Toolchains((), USUAL)


def test_names_that_mean_something_else_in_a_list_are_not_shown(home: Path) -> None:
    for name in ("a:b", "a*", "a\nb", "[a]", "{a}"):
        make(home, f".pyenv/versions/{name}/bin/python")
    make(home, ".pyenv/versions/3.12.1/bin/python")
    assert below(home, look(home).readable) == [".pyenv/versions/3.12.1"]


def test_of_many_versions_the_newest_are_shown(home: Path) -> None:
    for number in range(30):
        make(home, f".nvm/versions/node/v{number}.0.0/bin/node")
    seen = below(home, look(home).readable)
    assert seen == [f".nvm/versions/node/v{number}.0.0" for number in range(29, 29 - toolchains.MOST_VERSIONS, -1)]
