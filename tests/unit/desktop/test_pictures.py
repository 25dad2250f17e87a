"""Which files become pictures of a message, and what is said of the others."""

import os
from pathlib import Path

import pytest

from desktop.pictures import PictureRefusedError, message_of, pictures_of, read_picture, read_pictures
from runtime_host.definitions import MAX_IMAGE_BYTES, MAX_IMAGES, RunInput
from runtime_host.errors import AgentDriverConfigurationError

PNG = b"\x89PNG\r\n\x1a\n" + bytes(32)
JPEG = b"\xff\xd8\xff\xe0" + bytes(32)


def written(folder: Path, name: str, content: bytes) -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


def test_a_picture_comes_through_an_order_as_it_is(tmp_path: Path) -> None:
    files = [written(tmp_path, "one.png", PNG), written(tmp_path, "two.JPG", JPEG), written(tmp_path, "three", JPEG)]
    pictures = pictures_of({"images": read_pictures(files)})
    assert [(each.media_type, each.data) for each in pictures] == [
        ("image/png", PNG),
        ("image/jpeg", JPEG),
        ("image/jpeg", JPEG),
    ]
    message = message_of("What are these?", pictures)
    assert isinstance(message, RunInput)
    assert [part.type for part in message.parts] == ["text", "image", "image", "image"]
    alone = message_of(" ", pictures[:1])
    assert isinstance(alone, RunInput)
    assert [part.type for part in alone.parts] == ["image"]
    assert message_of("Hello", ()) == "Hello"


def test_what_is_no_picture_is_refused_by_its_name(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.png")
    (tmp_path / "link.png").symlink_to(written(tmp_path, "real.png", PNG))
    for path, words in (
        (tmp_path / "nothing.png", "No such file"),
        (tmp_path / "link.png", "is a link"),
        (tmp_path / "pipe.png", "no plain file"),
        (tmp_path, "no plain file"),
        (written(tmp_path, "text.png", b"hello"), "no PNG, JPEG, GIF or WebP"),
        (written(tmp_path, "empty.png", b""), "no PNG, JPEG, GIF or WebP"),
        (written(tmp_path, "vector.svg", b"<svg/>"), "no PNG, JPEG, GIF or WebP"),
        (written(tmp_path, "other.png", JPEG), "as its name says, but image/jpeg"),
        (written(tmp_path, "big.png", PNG + bytes(MAX_IMAGE_BYTES)), "more than 3 MiB"),
    ):
        with pytest.raises(PictureRefusedError, match=words) as refused:
            read_picture(path)
        assert str(path) in str(refused.value)


def test_there_is_a_most_of_pictures(tmp_path: Path) -> None:
    path = written(tmp_path, "one.png", PNG)
    assert len(read_pictures([path] * MAX_IMAGES)) == MAX_IMAGES
    with pytest.raises(PictureRefusedError, match=f"at most {MAX_IMAGES}"):
        read_pictures([path] * (MAX_IMAGES + 1))


@pytest.mark.parametrize(
    "images", [[{"media_type": "image/png", "data": "?"}], [{"media_type": "image/png"}], ["x"], [{"data": "aGk="}]]
)
def test_an_order_that_carries_no_picture_is_refused(images: list[object]) -> None:
    with pytest.raises(AgentDriverConfigurationError):
        pictures_of({"images": images})
