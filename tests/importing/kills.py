"""A take-over that dies between two of its steps."""


class Killed(BaseException):
    """The process is killed: nothing handles this."""


def killed_after(step, source):
    """The source, which is killed after a step of the move."""

    def kill(*_):
        raise Killed

    def kill_after(done):
        def call(*given):
            answer = done(*given)
            raise Killed if not answer else AssertionError

        return call

    if step == "insert":
        source.park = kill
    elif step == "park":
        source.park = kill_after(source.park)
    elif step == "commit":
        source.note = kill
    else:
        source.note = kill_after(source.note)
    return source
