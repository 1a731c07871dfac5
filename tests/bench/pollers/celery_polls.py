import os
import sys

from celery import Celery

from tests.bench import poll as polls

URL = os.environ["POLLS_REDIS"].replace("unix://", "redis+socket://").replace("?db=", "?virtual_host=")

app = Celery("polls", broker=URL, backend=URL if polls.RECORD else None)
app.conf.update(task_ignore_result=not polls.RECORD, worker_cancel_long_running_tasks_on_connection_loss=False)


@app.task(name="poll", soft_time_limit=polls.BOX, time_limit=polls.BOX + 1)
def poll() -> int:
    return polls.poll()


if __name__ == "__main__":
    with app.producer_pool.acquire(block=True) as producer:
        for _ in range(int(sys.argv[1])):
            app.send_task("poll", producer=producer)
