"""The layers between RQ and a function, outermost first. The order matters:

report   reports to RQ; turns a limit into an ordinary error, a drop into a short text
guard    asks the database whether this job may run, before any code of the task does
sentry   labels the run for Sentry, if Sentry is loaded
trace    makes the run the parent of the function's spans, if TICKER_OTEL is on
time_box arms the soft and the hard limit, and cancels them last of all
record   calls the function, and writes its one outcome
"""

from wrappers.layers.guard import guard
from wrappers.layers.record import record
from wrappers.layers.report import report
from wrappers.layers.sentry import sentry
from wrappers.layers.time_box import time_box
from wrappers.layers.trace import trace

LAYERS = (report, guard, sentry, trace, time_box, record)
