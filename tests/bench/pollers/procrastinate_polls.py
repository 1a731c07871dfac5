import asyncio
import os
import sys
from contextlib import suppress

from procrastinate import App, PsycopgConnector
from procrastinate.exceptions import ProcrastinateException

from tests.bench import poll as polls

app = App(connector=PsycopgConnector(conninfo=os.environ["POLLS_DATABASE"]))


@app.task(name="poll")
async def poll() -> int:
    return await polls.poll_async()


async def enqueue(count: int) -> None:
    async with app.open_async():
        with suppress(ProcrastinateException):  # they are there since the last round
            await app.schema_manager.apply_schema_async()
        await app.connector.execute_query_async("TRUNCATE procrastinate_jobs CASCADE")
        await app.configure_task("poll").batch_defer_async(*({} for _ in range(count)))


if __name__ == "__main__":
    asyncio.run(enqueue(int(sys.argv[1])))
