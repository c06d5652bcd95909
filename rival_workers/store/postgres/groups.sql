-- Groups: what steps.sql does for one run, for many runs in one statement. Two statements in one round trip are one
-- commit.
--
-- Each row has the guard of the single statement. A row that does not match is not among the results, and its caller
-- takes the single path, which finds out why. Rows are given in the order of their runs, and nested loops lock them in
-- that order, so two groups cannot deadlock. A run that an operator has locked is left out, so that the others do not
-- wait for it.
--
-- (status = '…') IS TRUE keeps the planner from using the partial indexes of unfinished rows, which would read all of
-- them. The id of a run comes from a row, even where all rows have the same id: with a parameter, a plan made while the
-- tables were empty compares the paths of all steps of the run.

-- name: rival_group_settings
-- Settings of the connections that groups use. The plan must not depend on the size of the tables when it was made:
-- index scans and nested loops are right for any size. Why not bitmap scans: see BY_INDEX in prepared.py.
SELECT set_config('plan_cache_mode', 'force_generic_plan', false), set_config('enable_hashjoin', 'off', false),
       set_config('enable_mergejoin', 'off', false), set_config('enable_seqscan', 'off', false),
       set_config('enable_bitmapscan', 'off', false), set_config('jit', 'off', false);

-- part: without_waiting
-- A group does not wait for a row that another transaction has locked: after the timeout its commits are executed
-- alone.
set_config('lock_timeout', '100ms', true) IS NOT NULL

-- name: rival_begin_runs
-- joins: begin_run
WITH given AS (
    SELECT * FROM unnest(:'run_ids'::text[], :'tokens'::int[], :'workflows'::text[], :'versions'::text[],
                         :'withouts'::text[], :'next_paths'::text[], :'next_kinds'::text[], :'timeouts'::float8[],
                         :'policies'::text[])
        WITH ORDINALITY AS given (run_id, token, workflow, version, without, next_path, next_kind, timeout, policy,
                                  number)
    WHERE :{without_waiting}
), run AS (
    UPDATE rival_runs run
    SET status = 'running', started_at = now(), token = run.token + 1, ring_at = deadline_at, rings = 0, parked = NULL
    FROM given
    WHERE run.id = given.run_id AND run.token = given.token AND (run.status = 'pending') IS TRUE
      AND paused_at IS NULL
      AND (due_at IS NULL OR due_at <= now() + interval '0.005 s') AND (deadline_at IS NULL OR deadline_at > now())
      AND (given.workflow IS NULL OR (run.workflow = given.workflow AND run.version = given.version))
      AND (given.without IS NULL OR (policies IS NULL AND (labels IS NULL OR given.without = 'policies')))
    RETURNING run.id, run.workflow, run.version, input, run.token, labels, deadline_at, priority, run.policies,
              given.next_path, given.next_kind, given.timeout, given.policy, given.number
), step AS (
    INSERT INTO rival_steps (run_id, path, kind, status, attempts, execution_token, timeout_token, executor_id,
                             created_at, started_at, timeout_at, ring_at, policy)
    SELECT id, next_path, next_kind, 'running', 1, token, token, :'executor', now(), now(),
           now() + make_interval(secs => timeout), now() + make_interval(secs => timeout), policy::json
    FROM run
), recorded AS (
    INSERT INTO rival_history (run_id, path, what, detail, actor, at)
    SELECT id, entry.path, entry.what, entry.detail, :'executor', now()
    FROM run, LATERAL (VALUES
        (NULL, 'started', CASE WHEN labels IS NULL AND deadline_at IS NULL AND priority IS NULL AND policies IS NULL
            THEN json_build_object('workflow', workflow, 'version', version, 'input', input)
            ELSE json_build_object('workflow', workflow, 'version', version, 'input', input, 'options',
                (SELECT json_object_agg(name, value) FROM (VALUES
                    ('labels', to_json(labels)), ('policies', to_json(policies)),
                    ('deadline', to_json(to_char(deadline_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"+00:00"'))),
                    ('priority', to_json(CASE priority WHEN -1 THEN 'high' WHEN 0 THEN 'normal' WHEN 1 THEN 'low' END))
                 ) AS given (name, value) WHERE value IS NOT NULL)) END),
        (next_path, 'claimed', json_build_object('kind', next_kind, 'attempt', 1))
    ) AS entry (path, what, detail)
)
SELECT number, input, labels, extract(epoch FROM deadline_at), extract(epoch FROM deadline_at - now()), priority,
       policies
FROM run;

-- name: rival_finish_steps
-- joins: finish_step
-- A step with a next path is followed by it; a step without one ends its run. A large result is written once: the
-- history refers to the row that has it (`result_details` in rival_client/sql/history.py).
WITH given AS MATERIALIZED (
    SELECT * FROM unnest(:'run_ids'::text[], :'paths'::text[], :'tokens'::int[], :'statuses'::text[],
                         :'results'::text[], :'states'::text[], :'outcomes'::text[], :'next_paths'::text[],
                         :'next_kinds'::text[], :'timeouts'::float8[], :'policies'::text[])
        WITH ORDINALITY AS given (run_id, path, token, status, result, state, outcome, next_path, next_kind, timeout,
                                  policy, number)
    WHERE :{without_waiting} AND pg_try_advisory_xact_lock_shared(hashtextextended(given.run_id, 726356))
), asked AS MATERIALIZED (
    SELECT given.*, run.token AS run_token
    FROM given JOIN rival_runs run ON run.id = given.run_id
    WHERE given.next_path IS NOT NULL
       OR (run.parent_run_id IS NULL AND run.slots IS NULL AND run.status IN ('running', 'suspended'))
), done AS (
    UPDATE rival_steps step
    SET status = given.status, result = given.result::json, state = given.state::json, error = NULL,
        completed_at = now(), execution_token = execution_token + 1, timeout_token = timeout_token + 1,
        timeout_at = NULL, ring_at = NULL
    FROM asked AS given
    WHERE step.run_id = given.run_id AND step.path = given.path AND execution_token = given.token
      AND (step.status = 'running') IS TRUE AND NOT step.paused AND step.slots IS NULL
      AND (step.kind <> 'flow' OR NOT EXISTS (
        SELECT FROM rival_steps open
        WHERE open.run_id = given.run_id AND open.path >= given.path || '/' AND open.path < given.path || '0'
          AND open.status NOT IN ('completed', 'skipped', 'failed', 'cancelled')))
    RETURNING step.run_id, step.path, step.executor_id, step.attempts, step.started_at AS begun_at,
              step.policy AS own_policy,
              given.run_token AS token, given.token AS attempt_token, given.status, given.result, given.state,
              given.outcome, given.next_path, given.next_kind, given.timeout, given.policy, given.number
), attempt AS (
    INSERT INTO rival_attempts (run_id, path, token, attempt, outcome, executor_id, started_at, ended_at, policy)
    SELECT run_id, path, attempt_token, attempts, outcome, executor_id, begun_at, now(), own_policy
    FROM done WHERE attempts > 1
), next AS (
    INSERT INTO rival_steps (run_id, path, kind, status, attempts, execution_token, timeout_token, executor_id,
                             created_at, started_at, timeout_at, ring_at, policy)
    SELECT run_id, next_path, next_kind, 'running', 1, token, token, :'executor', now(), now(),
           now() + make_interval(secs => timeout), now() + make_interval(secs => timeout), policy::json
    FROM done WHERE next_path IS NOT NULL
), ended AS (
    UPDATE rival_runs run
    SET status = 'completed', result = done.result::json, completed_at = now(), token = run.token + 1, ring_at = NULL
    FROM done
    WHERE done.next_path IS NULL AND run.id = done.run_id AND (run.status IN ('running', 'suspended')) IS TRUE
    RETURNING done.number
), recorded AS (
    INSERT INTO rival_history (run_id, path, what, detail, actor, at)
    SELECT run_id, entry.path, entry.what, entry.detail, executor_id, now()
    FROM done, LATERAL (VALUES
        (done.path, done.status,
         CASE WHEN octet_length(done.result) > 2000
              THEN json_build_object('result_token', attempt_token + 1, 'state', done.state::json)
              ELSE json_build_object('result', done.result::json, 'state', done.state::json) END),
        (next_path, CASE WHEN next_path IS NULL THEN 'completed' ELSE 'claimed' END,
         CASE WHEN next_path IS NOT NULL THEN json_build_object('kind', next_kind, 'attempt', 1)
              WHEN octet_length(done.result) > 2000
              THEN json_build_object('result_of', done.path, 'result_token', attempt_token + 1)
              ELSE json_build_object('result', done.result::json) END)
    ) AS entry (path, what, detail)
)
SELECT number, token - 1 FROM done WHERE next_path IS NOT NULL
UNION ALL
SELECT number, NULL FROM ended;

-- name: rival_finish_lanes
-- joins: finish_step
-- Several lanes of one for_each end and take the next items. The row of the composite, which all lanes count down, is
-- locked and written once for all of them, after the steps: from the leaf up. If the composite would end, each commit
-- takes the single path, which ends it.
WITH given AS MATERIALIZED (
    SELECT :'run_id'::text AS run_id, given.*
    FROM unnest(:'paths'::text[], :'tokens'::int[], :'statuses'::text[], :'results'::text[], :'states'::text[],
                :'outcomes'::text[], :'items'::text[], :'own_details'::text[], :'upper_details'::text[])
        WITH ORDINALITY AS given (path, token, status, result, state, outcome, item, own_detail, upper_detail, number)
    WHERE :{without_waiting} AND pg_try_advisory_xact_lock_shared(hashtextextended(:'run_id'::text, 726356))
), held AS MATERIALIZED (
    SELECT step.executor_id, step.attempts, step.started_at AS begun_at, step.policy AS own_policy, given.*
    FROM given JOIN rival_steps step ON step.run_id = given.run_id AND step.path = given.path
    WHERE step.execution_token = given.token AND (step.status = 'running') IS TRUE AND NOT step.paused
      AND step.slots IS NULL AND step.kind <> 'flow'
    FOR UPDATE OF step
), composite AS MATERIALIZED (
    SELECT composite.opened, composite.total, run.token, counted.ended
    FROM (SELECT count(*) AS ended FROM held) AS counted
    JOIN rival_steps composite ON composite.run_id = :'run_id' AND composite.path = :'join'
    JOIN rival_runs run ON run.id = composite.run_id
    WHERE (composite.status = 'waiting') IS TRUE AND composite.remaining > counted.ended AND counted.ended > 0
    FOR UPDATE OF composite
), lane AS MATERIALIZED (
    SELECT held.*, composite.token AS run_token, taken.item_number, taken.item_number < composite.total AS goes_on,
           :'join' || '[' || taken.item_number || :'next_path' AS next_path
    FROM (SELECT *, row_number() OVER (ORDER BY number) AS place FROM held) AS held CROSS JOIN composite,
         LATERAL (SELECT composite.opened + held.place - 1 AS item_number) AS taken
), joined AS (
    UPDATE rival_steps step
    SET remaining = remaining - composite.ended, opened = least(step.opened + composite.ended, step.total)
    FROM composite WHERE step.run_id = :'run_id' AND step.path = :'join'
), changed AS MATERIALIZED (
    SELECT lane.run_id, row.*, lane.result
    FROM lane, LATERAL (VALUES (lane.path, lane.status, lane.state, 1), (lane.item, 'completed', NULL, 0))
        AS row (path, status, state, is_step)
), ended AS (
    UPDATE rival_steps step
    SET status = changed.status, result = changed.result::json, state = changed.state::json, error = NULL,
        completed_at = now(), execution_token = execution_token + 1, timeout_token = timeout_token + changed.is_step,
        timeout_at = NULL, ring_at = NULL
    FROM changed WHERE step.run_id = changed.run_id AND step.path = changed.path
), attempt AS (
    INSERT INTO rival_attempts (run_id, path, token, attempt, outcome, executor_id, started_at, ended_at, policy)
    SELECT run_id, path, token, attempts, outcome, executor_id, begun_at, now(), own_policy
    FROM lane WHERE attempts > 1
), next AS (
    INSERT INTO rival_steps (run_id, path, kind, status, attempts, execution_token, timeout_token, executor_id,
                             created_at, started_at, timeout_at, ring_at, policy)
    SELECT run_id, next_path, :'next_kind', 'running', 1, run_token, run_token, :'executor', now(), now(),
           now() + make_interval(secs => :'timeout'), now() + make_interval(secs => :'timeout'), :'policy'::json
    FROM lane WHERE goes_on
), recorded AS (
    INSERT INTO rival_history (run_id, path, what, detail, actor, at)
    SELECT run_id, entry.path, entry.what, entry.detail, executor_id, now()
    FROM lane, LATERAL (VALUES
        (lane.path, lane.status, own_detail::json, 1),
        (lane.item, 'completed', upper_detail::json, 2),
        (next_path, 'claimed', json_build_object('kind', :'next_kind'::text, 'attempt', 1), 3)
    ) AS entry (path, what, detail, place)
    WHERE goes_on OR entry.what <> 'claimed'
    ORDER BY lane.number, entry.place
)
SELECT number, CASE WHEN goes_on THEN item_number END, run_token - 1 FROM lane;

-- name: rival_record_checkpoints
-- joins: record_checkpoint
-- New checkpoints of several flows. An existing checkpoint is left to the single path, which reads it.
WITH given AS MATERIALIZED (
    SELECT * FROM unnest(:'run_ids'::text[], :'flows'::text[], :'tokens'::int[], :'paths'::text[], :'kinds'::text[],
                         :'numbers'::int[], :'begun_afters'::int[], :'end_orders'::int[], :'statuses'::text[],
                         :'results'::text[], :'errors'::text[], :'attempts'::int[], :'whats'::text[],
                         :'details'::text[], :'states'::text[])
        WITH ORDINALITY AS given (run_id, flow, token, path, kind, opened, begun_after, end_order, status, result, error,
                                  attempts, what, detail, state, number)
    WHERE :{without_waiting} AND pg_try_advisory_xact_lock_shared(hashtextextended(given.run_id, 726356))
), held AS MATERIALIZED (
    SELECT step.executor_id, given.*
    FROM given JOIN rival_steps step ON step.run_id = given.run_id AND step.path = given.flow
    WHERE step.execution_token = given.token AND (step.status = 'running') IS TRUE AND NOT step.paused
    FOR UPDATE OF step
), written AS (
    INSERT INTO rival_steps (run_id, path, kind, opened, begun_after, end_order, status, result, error, attempts,
                             execution_token, created_at, started_at, completed_at)
    SELECT run_id, path, kind, opened, begun_after, end_order, status, result::json, error::json, attempts, token,
           now(), now(), now()
    FROM held
    ON CONFLICT (run_id, path) DO NOTHING
    RETURNING run_id, path, completed_at
), done AS MATERIALIZED (
    SELECT held.*, written.completed_at FROM held JOIN written USING (run_id, path)
), recorded AS (
    INSERT INTO rival_history (run_id, path, what, detail, actor, at)
    SELECT run_id, path, what, detail::json, executor_id, now() FROM done ORDER BY number
), flow AS (
    UPDATE rival_steps step SET lost = 0, state = coalesce(done.state::json, step.state)
    FROM done
    WHERE step.run_id = done.run_id AND step.path = done.flow AND (step.lost > 0 OR done.state IS NOT NULL)
)
SELECT number, extract(epoch FROM completed_at) FROM done;
