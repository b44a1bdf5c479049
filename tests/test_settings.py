from __future__ import annotations

import pickle
import re
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import settings as example_settings
from hypothesis import strategies as st

import kizuna
from kizuna.configuration import TOLD_TO_PROGRAMS, known_settings, nearest, variable_of
from kizuna.errors import SettingsError
from kizuna.sections import kinds
from kizuna.settings import (
    EmbeddedSettings,
    Loaded,
    ProbesSettings,
    RootsSettings,
    Secret,
    Settings,
    StoreSettings,
    load,
    load_settings,
    redact_url,
)

HIDDEN = "hunter2"


class Places:
    """A working folder, a home and an environment of a test's own, with nothing set anywhere."""

    def __init__(self, folder: Path) -> None:
        self.cwd = folder / "work"
        self.home = folder / "home"
        self.user_file = self.home / ".config" / "kizuna" / "kizuna.toml"
        self.project_file = self.cwd / "kizuna.toml"
        self.environ = {"HOME": str(self.home)}
        self.overrides: dict[str, object] = {}
        self.user_file.parent.mkdir(parents=True)
        self.cwd.mkdir()

    def load(self, config: str | Path | None = None) -> Loaded:
        return load(self.overrides, config=config, environ=self.environ, cwd=self.cwd)

    def problems(self, config: str | Path | None = None) -> tuple[str, ...]:
        with pytest.raises(SettingsError) as refused:
            self.load(config)
        return refused.value.problems

    def set(self, level: str, name: str, value: object) -> str:
        """Sets one thing at one level, and returns what its origin should be called."""
        table, _, field = name.partition(".")
        match level:
            case "code":
                self.overrides = {table: {field: value}}
                return "code"
            case "environment":
                self.environ[variable_of(name)] = str(value)
                return f"environment {variable_of(name)}"
            case "project":
                self.project_file.write_text(f"[{table}]\n{field} = {value!r}\n")
                return str(self.project_file)
            case _:
                self.user_file.write_text(f"[{table}]\n{field} = {value!r}\n")
                return str(self.user_file)


LEVELS = ["code", "environment", "project", "user"]


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return Places(tmp_path)


# which level counts


def test_with_nothing_set_anywhere_all_are_defaults(places: Places) -> None:
    loaded = places.load()

    assert loaded.settings == Settings()
    assert set(loaded.origins.values()) == {"default"}
    assert loaded.files == ()


values = {
    "embedded.port": st.integers(0, 65_535),
    "store.timeout_s": st.floats(0.001, 86_400),
    "embedded.profile": st.sampled_from(["fast", "durable"]),
    "roots.system": st.text("abc:/.-", min_size=1),
}


@example_settings(deadline=None)  # files are written, on a machine that may be busy
@given(data=st.data(), name=st.sampled_from(sorted(values)), levels=st.sets(st.sampled_from(LEVELS)))
def test_what_is_set_at_the_highest_level_wins_and_its_origin_is_told(
    data: st.DataObject, name: str, levels: set[str]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        places = Places(Path(folder))
        table, _, field = name.partition(".")
        expected = getattr(getattr(Settings(), table), field)
        origin = "default"
        for level in reversed([level for level in LEVELS if level in levels]):
            expected = data.draw(values[name], label=level)
            origin = places.set(level, name, expected)

        loaded = places.load()

        assert getattr(getattr(loaded.settings, table), field) == expected
        assert loaded.origins[name] == origin


def test_a_named_file_replaces_the_one_of_the_folder_and_stands_above_the_users(places: Places) -> None:
    places.set("project", "embedded.port", 1)
    places.user_file.write_text("[embedded]\nport = 2\nmaxmemory = '1gb'\n")
    (places.cwd / "other.toml").write_text("[embedded]\nport = 3\n")

    loaded = places.load("other.toml")

    assert (loaded.settings.embedded.port, loaded.settings.embedded.maxmemory) == (3, "1gb")
    assert loaded.files == (places.cwd / "other.toml", places.user_file)


def test_what_programs_are_told_by_us_is_no_setting(places: Places) -> None:
    """Else a program that we started could not call us."""
    sources = "".join(path.read_text() for path in Path(kizuna.__file__).parent.rglob("*.py"))
    told = set(re.findall(r'"(KIZUNA_[A-Z_]+)": ', sources))
    for variable in told:
        places.environ[variable] = "7"

    assert told == TOLD_TO_PROGRAMS
    assert places.load().settings == Settings()


def test_the_environment_can_name_the_file_and_the_flag_outdoes_it(places: Places) -> None:
    (places.cwd / "a.toml").write_text("[embedded]\nport = 1\n")
    (places.cwd / "b.toml").write_text("[embedded]\nport = 2\n")
    places.environ["KIZUNA_CONFIG"] = "a.toml"

    assert places.load().settings.embedded.port == 1
    assert places.load("b.toml").settings.embedded.port == 2


def test_the_users_file_is_below_xdg_config_home_where_that_is_set(places: Places) -> None:
    elsewhere = places.home / "elsewhere"
    (elsewhere / "kizuna").mkdir(parents=True)
    (elsewhere / "kizuna" / "kizuna.toml").write_text("[embedded]\nport = 7\n")
    places.environ["XDG_CONFIG_HOME"] = str(elsewhere)

    assert places.load().settings.embedded.port == 7


def test_code_may_name_a_setting_by_section_or_with_a_dot(places: Places) -> None:
    environ, cwd = places.environ, places.cwd

    assert load_settings({"probes": {"port": 1}}, environ=environ, cwd=cwd).probes.port == 1
    assert load_settings({"probes.port": "2"}, environ=environ, cwd=cwd).probes.port == 2


def test_without_a_home_there_is_no_users_file(places: Places) -> None:
    places.environ.clear()

    assert places.load().files == ()


# unknown names


@pytest.mark.parametrize(
    ("variable", "problem"),
    [
        (
            "KIZUNA_STORE__ULR",
            "store.ulr (environment KIZUNA_STORE__ULR) is not a setting; did you mean KIZUNA_STORE__URL for store.url?",
        ),
        (
            "KIZUNA_STROE__URL",
            "stroe.url (environment KIZUNA_STROE__URL) is not a setting; did you mean KIZUNA_STORE__URL for store.url?",
        ),
        (
            "KIZUNA_STORE_URL",
            "store_url (environment KIZUNA_STORE_URL) is not a setting; did you mean KIZUNA_STORE__URL for store.url?",
        ),
        (
            "KIZUNA_UMBRELLA",
            "umbrella (environment KIZUNA_UMBRELLA) is not a setting; `kizuna settings show` lists all there are",
        ),
    ],
)
def test_a_misspelt_variable_is_refused_and_the_right_one_named(places: Places, variable: str, problem: str) -> None:
    places.environ[variable] = HIDDEN

    assert places.problems() == (problem,)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[store]\nulr = 'x'", "store.ulr (FILE) is not a setting; did you mean store.url?"),
        ("[stroe]\nurl = 'x'", "stroe.url (FILE) is not a setting; did you mean store.url?"),
        ("[Store]\nURL = 'x'", "Store.URL (FILE) is not a setting; did you mean store.url?"),
        ("[embeded]", "embeded (FILE) is not a setting; did you mean embedded.port?"),
        ("url = 'x'", "url (FILE) is not a setting; did you mean store.url?"),
        ("store = 'x'", "store (FILE) is a section; a setting in it is written store.<name>"),
        ("[store.tls]\nca = 'x'", "store.tls (FILE) is not a setting; did you mean store.url?"),
    ],
)
def test_a_misspelt_name_in_a_file_is_refused_and_the_right_one_named(places: Places, text: str, problem: str) -> None:
    places.project_file.write_text(text)

    assert places.problems() == (problem.replace("FILE", str(places.project_file)),)


def test_an_empty_section_is_no_mistake(places: Places) -> None:
    places.project_file.write_text("[store]\n")

    assert places.load().settings == Settings()


@example_settings(deadline=None)
@given(name=st.sampled_from(sorted(known_settings(Settings))), at=st.integers(0, 100))
def test_one_wrong_letter_still_leads_to_the_right_name(name: str, at: int) -> None:
    at %= len(name)

    assert nearest(name[:at] + "#" + name[at + 1 :], known_settings(Settings)) == name


def test_a_unit_may_wait_for_a_fraction_of_a_second(places: Places) -> None:
    places.environ |= {variable_of("units.request_s"): "0.25", variable_of("roots.units"): "talk"}
    loaded = places.load().settings

    assert (loaded.units.request_s, loaded.roots.units) == (0.25, "talk")


# wrong values


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("embedded.port", "70000", "a whole number, at least 0 and at most 65535"),
        ("embedded.port", "many", "a whole number, at least 0 and at most 65535"),
        ("store.connections", "0", "a whole number, at least 1 and at most 64"),
        ("store.in_flight_bytes", "1", "a whole number, at least 65536"),
        ("store.timeout_s", "0", "a number, above 0 and at most 86400"),
        ("store.timeout_s", "-1", "a number, above 0 and at most 86400"),
        ("store.timeout_s", "nan", "a number, above 0 and at most 86400"),
        ("store.timeout_s", "inf", "a number, above 0 and at most 86400"),
        ("embedded.linger_s", "-1", "a number, at least 0 and at most 86400"),
        ("units.request_s", "0", "a number, at least 0.001 and at most 315360000"),
        ("units.keep_s", "inf", "a number, at least 0.001 and at most 315360000"),
        ("embedded.profile", "slow", "fast or durable"),
        ("embedded.maxmemory", "a lot", "a size such as 512mb or 2gb; 0 for no limit"),
        ("store.client_name", "my app", "text without blanks, in ASCII"),
        ("store.client_name", "app\n", "text without blanks, in ASCII"),
        ("roots.system", "", r"text that is not empty, without blanks and without any of `*?[]{}\`"),
        ("roots.system", "a*", r"text that is not empty, without blanks and without any of `*?[]{}\`"),
        ("probes.host", "", "a host name or an address"),
        ("embedded.folder", "a\0b", "text"),
        ("embedded.folder", "\udcff", "text"),
    ],
)
def test_a_wrong_value_is_refused_with_what_is_expected(places: Places, name: str, text: str, expected: str) -> None:
    places.environ[variable_of(name)] = text

    assert places.problems() == (f"{name} = {text!r} (environment {variable_of(name)}): expected {expected}",)


def test_a_wrong_value_that_looks_like_a_url_is_told_without_its_password(places: Places) -> None:
    places.overrides = {"embedded.port": f"redis://me:{HIDDEN}@db"}

    (problem,) = places.problems()

    assert problem.startswith("embedded.port = 'redis://me:***@db' (code): expected a whole number")


def test_a_file_has_types_and_text_is_not_taken_for_a_number(places: Places) -> None:
    places.project_file.write_text('[embedded]\nport = "3710"\n[store]\ntimeout_s = 2\n')

    assert places.problems() == (
        f"embedded.port = '3710' ({places.project_file}): expected a whole number, at least 0 and at most 65535",
    )


def test_a_wrong_value_is_refused_also_where_a_higher_level_outdoes_it(places: Places) -> None:
    places.set("user", "embedded.port", -1)
    places.set("code", "embedded.port", 1)

    (problem,) = places.problems()

    assert str(places.user_file) in problem


def test_values_that_contradict_each_other_are_refused(places: Places) -> None:
    places.overrides = {"store": {"pool_min": 30, "reconnect_first_s": 9, "tls_key_file": "key.pem"}}

    assert places.problems() == (
        "store: pool_min = 30 is above pool_max = 20",
        "store: reconnect_first_s = 9 is above reconnect_longest_s = 1",
        "store: tls_key_file is set without tls_cert_file",
    )


def test_all_problems_are_told_at_once(places: Places) -> None:
    places.project_file.write_text("[store]\nulr = 1\n")
    places.user_file.write_text("not toml")
    places.environ["KIZUNA_EMBEDDED__PORT"] = "x"
    places.overrides = {"store": {"pool_min": 30}}

    problems = places.problems()

    assert [problem.split(" ")[0] for problem in problems] == [
        f"{places.user_file}:",
        "embedded.port",
        "store.ulr",
        "store:",
    ]


# files


def test_a_named_file_must_exist(places: Places) -> None:
    assert places.problems("absent.toml") == (f"{places.cwd}/absent.toml cannot be read: No such file or directory",)


def test_a_mistake_in_the_syntax_is_told_with_file_and_line(places: Places) -> None:
    places.project_file.write_text("[store]\nurl = \n")

    (problem,) = places.problems()

    assert problem == f"{places.project_file}: Invalid value (at line 2, column 7)"


def test_a_file_that_is_not_text_is_refused(places: Places) -> None:
    places.project_file.write_bytes(b"\xff\xfe")

    assert places.problems() == (f"{places.project_file} cannot be read: it is not UTF-8",)


# secrets


def test_a_password_is_read_from_its_file_without_the_line_end(places: Places) -> None:
    (places.cwd / "secret").write_text(f" {HIDDEN}\n")
    places.overrides = {"store.password_file": "secret"}

    loaded = places.load()

    assert loaded.settings.store.password == f" {HIDDEN}"
    assert loaded.origins["store.password"] == f"the file {places.cwd}/secret, by store.password_file"


def test_a_password_and_its_file_in_one_place_are_refused(places: Places) -> None:
    places.overrides = {"store": {"password": HIDDEN, "password_file": "secret"}}
    (places.cwd / "secret").write_text("x")

    assert places.problems() == ("store.password and store.password_file are both set (code); keep one of them",)


@pytest.mark.parametrize(("above", "below"), [("password", "password_file"), ("password_file", "password")])
def test_a_password_or_its_file_replaces_the_other_of_a_lower_level(places: Places, above: str, below: str) -> None:
    (places.cwd / "secret").write_text("from the file")
    values = {"password": "itself", "password_file": "secret"}
    places.set("project", f"store.{below}", values[below])
    places.set("environment", f"store.{above}", values[above])

    password = places.load().settings.store.password

    assert password == {"password": "itself", "password_file": "from the file"}[above]


def test_a_password_file_that_cannot_be_read_is_named_with_its_setting(places: Places) -> None:
    places.overrides = {"store.sentinel_password_file": "absent"}

    reason = f"{places.cwd}/absent cannot be read: No such file or directory"
    assert places.problems() == (f"store.sentinel_password_file (code): {reason}",)


@pytest.fixture
def secretive(places: Places) -> Loaded:
    (places.cwd / "secret").write_text(HIDDEN)
    places.environ["KIZUNA_STORE__PASSWORD"] = HIDDEN
    places.overrides = {"store": {"url": f"redis://me:{HIDDEN}@db", "sentinel_password_file": "secret"}}
    return places.load()


def test_secrets_are_usable_text(secretive: Loaded) -> None:
    store = secretive.settings.store

    assert store.password == store.sentinel_password == f"{store.password}" == HIDDEN
    assert store.url == f"redis://me:{HIDDEN}@db"


def test_secrets_are_in_no_text_that_settings_make_of_themselves(secretive: Loaded) -> None:
    settings = secretive.settings
    texts = [
        repr(secretive),
        repr(settings),
        str(settings),
        f"{settings} {settings.store!r:>300}",
        repr(settings.store.__rich_repr__()),
        repr(settings.store.password),
        "%s" % (settings,),  # noqa: UP031 - as a log line does it
    ]

    assert [text for text in texts if HIDDEN in text] == []
    assert "password='***'" in repr(settings)
    assert "url='redis://me:***@db'" in repr(settings)


def test_settings_are_not_written_as_json(secretive: Loaded) -> None:
    with pytest.raises(TypeError, match="Secret"):
        msgspec.json.encode(secretive.settings)


def test_a_secret_of_the_wrong_type_is_not_shown(places: Places) -> None:
    places.project_file.write_text("[store]\npassword = 12345\n")

    assert places.problems() == (f"store.password ({places.project_file}): expected text",)


def test_a_secret_given_in_code_is_hidden_too() -> None:
    # What mypy would object to is what this is about.
    given_in_code: Any = HIDDEN
    store = msgspec.structs.replace(StoreSettings(), password=given_in_code)

    assert isinstance(store.password, Secret)
    assert HIDDEN not in repr(store)


def test_settings_survive_a_trip_between_processes(secretive: Loaded) -> None:
    assert pickle.loads(pickle.dumps(secretive.settings)) == secretive.settings


@pytest.mark.parametrize(
    ("url", "redacted"),
    [
        ("embedded://", "embedded://"),
        ("redis://db:6379/0", "redis://db:6379/0"),
        ("redis://me@db", "redis://***@db"),
        ("redis://:pw@db", "redis://:***@db"),
        ("redis://me:pw@db:6379/0", "redis://me:***@db:6379/0"),
        ("redis://me:p@w/x@db", "redis://me:***@db"),
        ("redis+sentinel://me:pw@a:1,b:2/main", "redis+sentinel://me:***@a:1,b:2/main"),
        ("redis://me:p\nw@db", "redis://me:***@db"),
        ("redis://db?username=me&password=pw&db=1", "redis://db?username=me&password=***&db=1"),
        ("me:pw@db", "me:***@db"),
        ("someone@example.com", "someone@example.com"),
        ("unix:///run/valkey.sock", "unix:///run/valkey.sock"),
    ],
)
def test_a_url_is_shown_without_its_password(url: str, redacted: str) -> None:
    assert redact_url(url) == redacted


@example_settings(deadline=None)
@given(password=st.text(min_size=1))
def test_whatever_the_password_the_url_does_not_show_it(password: str) -> None:
    assert redact_url(f"rediss://me:{password}@db:1/0") == "rediss://me:***@db:1/0"


# sections made in code


def test_a_section_made_in_code_is_checked_in_the_same_way() -> None:
    with pytest.raises(SettingsError, match=r"probes.port = -1 \(code\): expected a whole number"):
        ProbesSettings(port=-1)
    with pytest.raises(SettingsError, match="pool_min = 5 is above pool_max = 1"):
        msgspec.structs.replace(StoreSettings(), pool_max=1)


def test_a_section_names_itself_as_its_table_is_named() -> None:
    assert {name: section.title() for name, section in kinds(Settings).items()} == {
        name: name for name in Settings.__struct_fields__
    }


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        EmbeddedSettings().port = 1  # type: ignore[misc]


@pytest.mark.parametrize("root", ["kizuna", "muf/", "poppo:", "a-b_c.d", "絆"])
def test_a_root_may_look_like_any_of_these(root: str) -> None:
    assert RootsSettings(system=root).system == root
