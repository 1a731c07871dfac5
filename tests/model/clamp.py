"""What `clamp` and `clamp_runs` make of one row after the clock was set."""

from tests.model.rules import MARGIN, UNIT, Bounds, Rules
from tests.model.state import DUE, Row, due_at


class Times:
    def __init__(self, bounds: Bounds, rules: Rules) -> None:
        self.bounds, self.rules = bounds, rules

    def clamped(self, row: Row, stepped: bool) -> Row:
        if not self.is_ahead(row, stepped):
            return row
        last, occurrence, hold = row.last_run, row.last_occurrence, row.hold
        if self.is_known(row):
            row = due_at(row, min(row.next_run, self.bounds.in_force(row.timing, row.pace)))
        return row._replace(
            last_run=None if last is None else min(last, 0),
            last_occurrence=None if occurrence is None else min(occurrence, 0),
            hold=None if hold is None else min(hold, self.span_held(row)),
            push_after=None,
        )

    def is_ahead(self, row: Row, stepped: bool) -> bool:
        """Returns whether a time of the row lies too far ahead."""
        occurrence = row.last_occurrence
        longest = 0 if stepped else self.bounds.back_off * UNIT + MARGIN
        return (
            (row.last_run is not None and row.last_run > 0)
            or (occurrence is not None and occurrence > MARGIN)
            or (row.hold is not None and row.hold > self.span_held(row))
            or (self.rules.clamp_mends_delays and row.push_after is not None and row.push_after > longest)
            or (self.is_known(row) and row.next_run > self.bounds.in_force(row.timing, row.pace) + MARGIN)
        )

    def is_known(self, row: Row) -> bool:
        """It was pushed before, so that its next_run is no `first` which somebody wanted."""
        recorded = row.recorded and self.rules.clamp_asks_the_records
        return recorded or row.last_occurrence is not None or bool(row.waiting) or row.created > MARGIN

    def span_held(self, row: Row) -> int:
        spans = [o.span for o in row.opens if o.token and o.token == row.token]
        return spans[0] if spans else self.bounds.timings[row.timing].hold

    def with_mended_runs(self, row: Row) -> Row:
        """clamp_runs, in each pass: what began, or was planned, in the future."""
        if self.rules.clamp_mends_runs and any(o.until > o.span + MARGIN for o in row.opens):
            mended = [o._replace(until=o.span) if o.until > o.span + MARGIN else o for o in row.opens]
            row = row._replace(opens=tuple(sorted(mended)))
        if self.rules.clamp_mends_plans and row.plan[0] == DUE and row.plan[1] > MARGIN:
            row = row._replace(plan=(DUE, 0))
        return row
