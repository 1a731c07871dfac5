"""All mutants, in the order of a row's life."""

from tests.mutants.applications import APPLICATIONS
from tests.mutants.causes import CAUSES
from tests.mutants.crowds import CROWDS
from tests.mutants.groups import GROUPS
from tests.mutants.imports import IMPORTS
from tests.mutants.installations import INSTALLATIONS
from tests.mutants.limited_starts import LIMITED_STARTS
from tests.mutants.minutes import MINUTES
from tests.mutants.outputs import OUTPUTS
from tests.mutants.owners import OWNERS
from tests.mutants.pages import PAGES
from tests.mutants.pushes import PUSHES
from tests.mutants.refills import REFILLS
from tests.mutants.rhythm import RHYTHM
from tests.mutants.runs import RUNS
from tests.mutants.sessions import SESSIONS
from tests.mutants.silence import SILENCE
from tests.mutants.starts import STARTS
from tests.mutants.stops import STOPS
from tests.mutants.sweeps import SWEEPS
from tests.mutants.translations import TRANSLATIONS

CATALOGUE = (
    *APPLICATIONS,
    *OWNERS,
    *PUSHES,
    *CROWDS,
    *GROUPS,
    *REFILLS,
    *STARTS,
    *LIMITED_STARTS,
    *RUNS,
    *OUTPUTS,
    *RHYTHM,
    *STOPS,
    *SWEEPS,
    *SILENCE,
    *CAUSES,
    *MINUTES,
    *INSTALLATIONS,
    *SESSIONS,
    *PAGES,
    *IMPORTS,
    *TRANSLATIONS,
)
