-- Flows in groups: continue_as of several flows, in the commit of their group. See groups.sql. 726356 is the number of the
-- locks of runs.

-- name: rival_lock_runs
-- Takes the exclusive locks of runs in a separate statement: the next one must see what was committed before this one
-- had them. A group does not wait for locks. The next statement reads the numbers of the locked runs. Returns no row.
SELECT FROM (
    SELECT coalesce(array_agg(number), '{}')::text AS numbers
    FROM unnest(:'run_ids'::text[]) WITH ORDINALITY AS given (run_id, number)
    WHERE pg_try_advisory_xact_lock(hashtextextended(run_id, 726356))
) AS locked
WHERE set_config('rival.locked_runs', numbers, true) IS NULL;

-- part: below_step
(past.path = step.path
        OR (past.path >= step.path || '/' AND past.path < step.path || '0')
        OR (past.path >= step.path || '[' AND past.path < step.path || '\')
        OR (past.path >= step.path || '!' AND past.path < step.path || '"'))

-- name: rival_continue_flows
-- joins: continue_flow
-- Like rival_continue_flow_and_claim in flows.sql, which says what is deleted and what is kept.
WITH given AS MATERIALIZED (
    SELECT * FROM unnest(:'run_ids'::text[], :'flows'::text[], :'tokens'::int[], :'inputs'::text[], :'states'::text[],
                         :'timeouts'::float8[], :'policies'::text[])
        WITH ORDINALITY AS given (run_id, flow, token, input, state, timeout, policy, number)
    WHERE set_config('lock_timeout', '100ms', true) IS NOT NULL
      AND given.number = ANY(current_setting('rival.locked_runs', true)::bigint[])
), step AS (
    UPDATE rival_steps step
    SET execution_token = execution_token + 1, timeout_token = timeout_token + 1, attempts = 1, lost = 0,
        executor_id = :'executor', started_at = now(), item = given.input::json, due_at = NULL, rings = 0,
        parked = NULL, start_by = NULL,
        timeout_at = least(now() + make_interval(secs => given.timeout), step.deadline_at),
        ring_at = least(now() + make_interval(secs => given.timeout), step.deadline_at), policy = given.policy::json,
        state = coalesce(given.state::json, step.state)
    FROM given JOIN rival_runs run ON run.id = given.run_id
    WHERE step.run_id = given.run_id AND step.path = given.flow AND step.execution_token = given.token
      AND (step.status = 'running') IS TRUE AND step.slots IS NULL
      AND coalesce(step.queue, 'default') = ANY((:'queues'::text)::text[])
      AND (step.start_by IS NULL OR step.start_by > now()) AND (step.deadline_at IS NULL OR step.deadline_at > now())
      AND (run.status IN ('pending', 'running', 'suspended')) IS TRUE
      AND NOT step.paused AND run.paused_at IS NULL
    RETURNING step.run_id, step.path, step.execution_token, step.timeout_token, step.kind, step.state, given.input,
              given.number
), ranges AS MATERIALIZED (
    SELECT step.run_id, range.low, range.high
    FROM step, LATERAL (VALUES (path || '/', path || '0'), (path || '[', path || '\'), (path || '!', path || '"'))
        AS range (low, high)
), checkpoints AS (
    DELETE FROM rival_steps past USING ranges
    WHERE past.run_id = ranges.run_id AND past.path >= ranges.low AND past.path < ranges.high
), past_attempts AS (
    DELETE FROM rival_attempts past USING step WHERE past.run_id = step.run_id AND :{below_step}
), lines AS (
    DELETE FROM rival_logs past USING step WHERE past.run_id = step.run_id AND :{below_step}
), waiting AS (
    DELETE FROM rival_waits past USING step WHERE past.run_id = step.run_id AND :{below_step}
), received AS (
    DELETE FROM rival_deliveries past USING step WHERE past.run_id = step.run_id AND :{below_step}
      AND NOT EXISTS (SELECT FROM rival_events WHERE id = past.event_id AND delivery = 'all')
), entries AS (
    DELETE FROM rival_history past USING step WHERE past.run_id = step.run_id AND :{below_step}
      AND past.what NOT IN ('retry_run', 'rewind_run')
), ended AS (
    SELECT child.id FROM step JOIN rival_runs child ON child.parent_run_id = step.run_id
    WHERE child.parent_path >= step.path || '/' AND child.parent_path < step.path || '0'
      AND child.status IN ('completed', 'failed', 'cancelled')
    FOR UPDATE OF child SKIP LOCKED
), children AS (
    UPDATE rival_runs SET parent_run_id = NULL, parent_path = NULL WHERE id IN (SELECT id FROM ended)
), recorded AS (
    INSERT INTO rival_history (run_id, path, what, detail, actor, at)
    SELECT run_id, path, entry.what, entry.detail, :'executor', now()
    FROM step, LATERAL (VALUES
        ('continued', CASE WHEN state IS NULL THEN json_build_object('kind', kind, 'item', input::json)
                           ELSE json_build_object('kind', kind, 'item', input::json, 'state', state) END, 1),
        ('claimed', json_build_object('attempt', 1), 2)
    ) AS entry (what, detail, place)
    ORDER BY number, entry.place
)
SELECT number, execution_token, timeout_token FROM step;
