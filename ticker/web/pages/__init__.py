"""Serves the screens. Each screen is a function that returns the data for its template. No script or style is inline."""

from starlette.routing import Route

from ticker.web.pages import forms, gates, now, runs, tasks
from ticker.web.pages.screen import error_page

__all__ = ["error_page", "routes"]

routes = [
    Route("/", now.now, name="now"),
    Route("/tasks", tasks.tasks, name="tasks"),
    Route("/tasks/do", tasks.do_with_many, methods=["POST"]),
    Route("/tasks/new", forms.new, name="new"),
    Route("/tasks/preview", forms.previewed),
    Route("/tasks/create", forms.create, methods=["POST"]),
    Route("/tasks/{id}", tasks.task, name="task"),
    Route("/tasks/{id}/edit", forms.edit),
    Route("/tasks/{id}/change", forms.change, methods=["POST"]),
    Route("/tasks/{id}/do", tasks.do, methods=["POST"]),
    Route("/owners", now.owners, name="owners"),
    Route("/limits", gates.limits, name="limits"),
    Route("/limits/set", gates.declare, methods=["POST"]),
    Route("/limits/remove", gates.remove, methods=["POST"]),
    Route("/limits/release", gates.release, methods=["POST"]),
    Route("/pauses", gates.pauses, name="pauses"),
    Route("/pauses/pause", gates.pause, methods=["POST"]),
    Route("/pauses/resume", gates.resume, methods=["POST"]),
    Route("/runs", runs.runs, name="runs"),
    Route("/runs/{id}", runs.run, name="run"),
    Route("/runs/{id}/texts", runs.texts),
    Route("/runs/{id}/stop", runs.stop, methods=["POST"]),
    Route("/drops", runs.drops, name="drops"),
    Route("/processes", now.processes, name="processes"),
]
