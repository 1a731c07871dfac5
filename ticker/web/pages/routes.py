"""Maps addresses to screens and changes."""

from starlette.routing import Route

from ticker.web.pages import actions, forms, limits, now, owners, pauses, processes, runs, task, tasks

routes = [
    Route("/", now.now, name="now"),
    Route("/tasks", tasks.tasks, name="tasks"),
    Route("/tasks/do", actions.do_with_many, methods=["POST"]),
    Route("/tasks/new", forms.new, name="new"),
    Route("/tasks/preview", forms.previewed),
    Route("/tasks/create", forms.create, methods=["POST"]),
    Route("/tasks/{id}", task.task, name="task"),
    Route("/tasks/{id}/edit", forms.edit),
    Route("/tasks/{id}/change", forms.change, methods=["POST"]),
    Route("/tasks/{id}/do", actions.do, methods=["POST"]),
    Route("/owners", owners.owners, name="owners"),
    Route("/limits", limits.limits, name="limits"),
    Route("/limits/set", limits.declare, methods=["POST"]),
    Route("/limits/remove", limits.remove, methods=["POST"]),
    Route("/limits/release", limits.release, methods=["POST"]),
    Route("/pauses", pauses.pauses, name="pauses"),
    Route("/pauses/pause", pauses.pause, methods=["POST"]),
    Route("/pauses/resume", pauses.resume, methods=["POST"]),
    Route("/runs", runs.runs, name="runs"),
    Route("/runs/{id}", runs.run, name="run"),
    Route("/runs/{id}/texts", runs.texts),
    Route("/runs/{id}/stop", runs.stop, methods=["POST"]),
    Route("/drops", runs.drops, name="drops"),
    Route("/processes", processes.processes, name="processes"),
]
