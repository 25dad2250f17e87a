"""`native.agent` in a folder: what it takes, and what it says of who holds it to that."""

import pytest

from runtime_host.definitions import AgentDefinition, Environment, SessionOptions, WorkspaceFilePart
from runtime_host.drivers.native import profile
from runtime_host.drivers.native.driver import NativeDriver
from runtime_host.drivers.native.profile import Folder
from runtime_host.errors import AgentDriverConfigurationError, AgentPolicyUnsupportedError
from runtime_host.policy import CHAT, Policy
from tests.loopback.native import options_for, registry_for

FOLDER = Environment(type="local-directory", path="/srv/project")
DEFINITION = AgentDefinition(id="a")
READ = CHAT.model_copy(update={"filesystem": "read-only"})
WORK = CHAT.model_copy(update={"filesystem": "workspace-write", "commands": "sandboxed"})


def in_folder(policy: Policy) -> SessionOptions:
    return options_for(environment=FOLDER, policy=policy)


@pytest.mark.parametrize(
    ("policy", "folder"),
    [
        (READ, Folder(writes=False, commands=False)),
        (READ.model_copy(update={"commands": "sandboxed"}), Folder(writes=False, commands=True)),
        (WORK.model_copy(update={"commands": "denied"}), Folder(writes=True, commands=False)),
        (WORK.model_copy(update={"approvals": "interactive"}), Folder(writes=True, commands=True)),
    ],
)
def test_a_folder_is_taken_with_what_the_policy_lets(policy: Policy, folder: Folder) -> None:
    assert profile.check_session(in_folder(policy), folders=True) == folder


@pytest.mark.parametrize(
    ("options", "field"),
    [
        (in_folder(CHAT), "filesystem"),
        (in_folder(WORK.model_copy(update={"sandbox_network": "allowed"})), "sandbox_network"),
        (in_folder(WORK.model_copy(update={"provider_web_search": "allowed"})), "provider_web_search"),
        (options_for(policy=READ), "filesystem"),
        (options_for(environment=Environment(type="provider-managed"), policy=READ), "environment"),
    ],
)
def test_what_cannot_be_held_is_refused(options: SessionOptions, field: str) -> None:
    with pytest.raises(AgentPolicyUnsupportedError) as refused:
        profile.check_session(options, folders=True)
    assert refused.value.details == {"field": f"policy.{field}"}


def test_an_application_without_the_tools_for_it_takes_no_folder() -> None:
    with pytest.raises(AgentPolicyUnsupportedError, match="without a folder here"):
        profile.check_session(in_folder(READ))


async def test_the_words_name_who_holds_it() -> None:
    driver = NativeDriver(registry_for("http://127.0.0.1:1/v1"), works_in_folders=True)
    try:
        reads = (await driver.inspect(DEFINITION, in_folder(READ))).enforcement
        works = await driver.inspect(DEFINITION, in_folder(WORK))
        chats = (await driver.inspect(DEFINITION, options_for())).enforcement
    finally:
        await driver.aclose()
    assert "open nothing outside the folder" in reads["filesystem"]
    assert "not offered" in reads["commands"]
    assert works.enforcement["commands"].startswith("a wall of the host around each command")
    assert works.enforcement["sandbox_network"] == works.enforcement["commands"]
    assert "none of them is for a folder" in chats["filesystem"]
    assert works.capabilities["isolation.workspace"].support == "native"
    assert works.capabilities["event.file_change"].support == "native"
    assert any("Walls" in each for each in works.prerequisites)


def test_a_picture_is_not_taken_by_the_name_of_a_file() -> None:
    with pytest.raises(AgentDriverConfigurationError, match="Give the picture"):
        profile.check_parts((WorkspaceFilePart(path="/srv/project/a.png", media_type="image/png"),))
