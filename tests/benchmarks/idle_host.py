"""The real host with a planted 1 Hz timer, in itself and in its renderer.

python -I -m tests.benchmarks.idle_host FOLDER
"""

import asyncio
import sys
from typing import Any

RENDERER = (
    "import signal; signal.signal(signal.SIGALRM, lambda *_: None); signal.setitimer(signal.ITIMER_REAL, 1, 1);"
    "import runpy; runpy.run_module('ui', run_name='__main__', alter_sys=True)"
)


def main() -> int:
    import desktop.__main__
    import desktop.app
    from tests.benchmarks.start_host import put_program

    put_program([sys.executable, "-I", "-c", RENDERER])
    run_until_ended = desktop.app.Host.run_until_ended

    async def with_timer(host: Any) -> None:
        loop = asyncio.get_running_loop()

        def tick() -> None:
            loop.call_later(1.0, tick)

        tick()
        await run_until_ended(host)

    desktop.app.Host.run_until_ended = with_timer  # type: ignore[assignment, method-assign]
    return desktop.__main__.main(["--data-dir", sys.argv[1]])


if __name__ == "__main__":
    sys.exit(main())
