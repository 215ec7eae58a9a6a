"""Finding plug-ins runs none of their code; loading checks all of what they must offer."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from eps_locked.errors import MalformedInputError
from eps_locked.metrics.loading import GROUP, find, find_file, installed, load, require_metric
from unit.metrics.made import Made, plugin_file


def install(folder: Path, points: str, name: str = "spike", body: str = "") -> Path:
    """A package as an installer leaves it: modules, and metadata that names the entry points."""
    package = folder / name
    package.mkdir()
    (package / "__init__.py").write_text(body)
    plugin_file(package, "", "code.py")
    metadata = folder / f"{name}-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(f"[{GROUP}]\n{points}\n")
    return package


def test_the_shipped_metrics_are_known_by_name() -> None:
    assert {"bystander-prior", "source-prior"} <= {plugin.name for plugin in installed()}


def test_an_installed_package_is_found_without_running_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = install(tmp_path, "m = spike.code:M", body="raise RuntimeError('was run')")
    monkeypatch.syspath_prepend(str(tmp_path))
    plugin = find("m")
    assert plugin.places == (package.resolve(),)
    assert (plugin.module, plugin.attribute) == ("spike.code", "M")
    assert not [name for name in sys.modules if name.startswith("spike")]


def test_two_metrics_of_one_name_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, "bystander-prior = spike.code:M")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(MalformedInputError, match="offered twice") as caught:
        installed()
    assert any("spike.code:M" in line for line in caught.value.details)


@pytest.mark.parametrize("point", ["Bad Name = spike.code:M", "m = spike.code"])
def test_an_entry_point_of_another_form_is_refused(
    point: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, point)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(MalformedInputError, match="entry point"):
        installed()


def test_an_entry_point_to_nothing_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, "m = gone.code:M")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(MalformedInputError, match="an installed module gone"):
        installed()


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(MalformedInputError, match="bystander-prior"):
        find("nobody")


@pytest.mark.parametrize("reference", ["x.py", "x:M", "x.txt:M", "x.py:", "x.py:not one"])
def test_a_file_reference_of_another_form_is_refused(reference: str) -> None:
    with pytest.raises(MalformedInputError, match="--plugin"):
        find_file(reference)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MalformedInputError, match="is missing"):
        find_file(f"{tmp_path}/gone.py:M")


def test_a_file_gives_its_metric_and_only_that_file_may_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    path = plugin_file(tmp_path, "")
    plugin = find_file(f"{path}:M")
    assert plugin.places == (path.resolve(),)
    assert load(plugin).id == "m"


def test_an_object_is_a_metric_as_well_as_a_class() -> None:
    plugin = find_file(f"{__file__}:Made")
    assert require_metric(Made(), plugin).title == "Made"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("id", "Capital"),
        ("id", ""),
        ("title", None),
        ("author", 3),
        ("polarity", "up"),
        ("track", "both"),
        ("description", " "),
        ("score", None),
        ("behaviour_vector", 1.0),
    ],
)
def test_each_part_of_a_metric_is_asked_for(key: str, value: object) -> None:
    metric = type("Wrong", (Made,), {key: value})()
    with pytest.raises(MalformedInputError) as caught:
        require_metric(metric, find_file(f"{__file__}:Made"))
    assert [line for line in caught.value.details if line.startswith(f"{key}: ")]
    assert len(caught.value.details) == 1


def test_an_installed_metric_bears_the_name_it_is_registered_under(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, "other = spike.code:M")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(MalformedInputError) as caught:
        require_metric(Made(), find("other"))
    assert caught.value.details == ("id: expected other, as it is registered, found 'made'",)
