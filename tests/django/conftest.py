"""The project of docs/recipes/django.md, on a database of its own; neither DATABASE_URL nor REDIS_URL is set."""

import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.django.project import MAIL, SETTINGS, URLS
from tests.documents.recipes import files, needs, run, write
from tests.running import PATIENCE
from ticker.embedded import Servers


@pytest.fixture(scope="session")
def recipe(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of the project, with the first migration made before the second is there, as the reader does."""
    needs("django")
    folder = tmp_path_factory.mktemp("recipe")
    shown = files("django")
    second = shown.pop("myapp/migrations/0002_follow.py")
    write(folder, **shown)
    write(folder, **{
        "project/settings.py": SETTINGS + shown["project/settings.py"].replace("redis://localhost:6379/0", "unset"),
        "project/urls.py": URLS, "project/__init__.py": "", "myapp/__init__.py": "", "myapp/mail.py": MAIL,
        "myapp/migrations/__init__.py": "",
    })  # fmt: skip
    variables = {"DJANGO_SETTINGS_MODULE": "project.settings", "PROJECT_DATABASE": servers.database_url}
    run(folder, sys.executable, "-m", "django", "makemigrations", "myapp", **variables)
    write(folder, **{"myapp/migrations/0002_follow.py": second})
    return folder


@pytest.fixture
def project(recipe: Path, tmp_path: Path, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(recipe, tmp_path, dirs_exist_ok=True)
    settings = tmp_path / "project" / "settings.py"
    settings.write_text(settings.read_text().replace('"unset"', repr(environ["REDIS_URL"])))
    monkeypatch.setenv("DJANGO_SETTINGS_MODULE", "project.settings")
    monkeypatch.setenv("PROJECT_DATABASE", environ["DATABASE_URL"])
    monkeypatch.delenv("DATABASE_URL")
    monkeypatch.delenv("REDIS_URL")
    return tmp_path


@pytest.fixture
def manage(project: Path) -> Callable[..., str]:
    """Runs a command of manage.py, and returns what it prints."""
    bound = 3 * PATIENCE  # Django makes 20 migrations and, for its tests, a database
    return lambda *command, **options: run(project, sys.executable, "-m", "django", *command, patience=bound, **options)


@pytest.fixture
def shell(project: Path) -> Callable[[str], str]:
    """Runs a script with Django set up, and returns what it prints."""
    return lambda script: run(project, sys.executable, "-c", f"import django; django.setup()\n{script}")
