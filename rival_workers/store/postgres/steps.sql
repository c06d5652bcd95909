-- Runs and steps: the transitions of the happy path, each one statement, one round trip and one commit.
--
-- The first part of a statement is its guard: the token, the status, and every precondition on rows. The other parts
-- take their rows from what the guard returned, so a call that does not fit changes nothing and returns no row; the
-- caller then takes the portable path.
--
-- Parameters are psql variables: set them (\set run_id order-1) and paste the statement into psql. The shared lock of
-- the run (726356, see rival_client/db/locks.py) is a condition of the guard, so it is taken before any row is locked.
-- own_detail and upper_detail are those of the history entries of a step that ends, and of the item or run that ends
-- with it: they have its result, or name the row that has it (rival_client/sql/history.py).

-- name: rival_begin_run
-- shortcuts: begin_run
-- A message is untrusted: it names the workflow whose code would run, and the row must name the same. If the row names
-- another, the second SELECT returns that one. If the first step was planned without rules that the run has, nothing is
-- done, and the second SELECT returns its rules and labels.
WITH run AS (
    UPDATE rival_runs
    SET status = 'running', started_at = now(), token = token + 1, ring_at = deadline_at, rings = 0, parked = NULL
    WHERE id = :'run_id' AND token = :'token' AND status = 'pending' AND paused_at IS NULL
      AND (due_at IS NULL OR due_at <= now() + interval '0.005 s') AND (deadline_at IS NULL OR deadline_at > now())
      AND (:'workflow'::text IS NULL OR (workflow = :'workflow'::text AND version = :'version'::text))
      AND (:'without'::text IS NULL OR (policies IS NULL AND (labels IS NULL OR :'without'::text = 'policies')))
    RETURNING id, workflow, version, input, token, labels, deadline_at, priority, policies
), step AS (
    INSERT INTO rival_steps (run_id, path, kind, status, attempts, execution_token, timeout_token, executor_id,
                             created_at, started_at, timeout_at, ring_at, policy)
    SELECT id, :'next_path', :'next_kind', 'running', 1, token, token, :'executor', now(), now(),
           now() + make_interval(secs => :'timeout'), now() + make_interval(secs => :'timeout'),
           :'policy'::json
    FROM run
), recorded AS (
    INSERT INTO rival_history (run_id, path, what, detail, actor, at)
    SELECT id, entry.path, entry.what, entry.detail, :'executor', now()
    FROM run, LATERAL (VALUES
        (NULL, 'started', CASE WHEN labels IS NULL AND deadline_at IS NULL AND priority IS NULL AND policies IS NULL
            THEN json_build_object('workflow', workflow, 'version', version, 'input', input)
            -- Not json_strip_nulls: a rule can have a null ("no timeout").
            ELSE json_build_object('workflow', workflow, 'version', version, 'input', input, 'options',
                (SELECT json_object_agg(name, value) FROM (VALUES
                    ('labels', to_json(labels)), ('policies', to_json(policies)),
                    ('deadline', to_json(to_char(deadline_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"+00:00"'))),
                    ('priority', to_json(CASE priority WHEN -1 THEN 'high' WHEN 0 THEN 'normal' WHEN 1 THEN 'low' END))
                 ) AS given (name, value) WHERE value IS NOT NULL)) END),
        (:'next_path', 'claimed', json_build_object('kind', :'next_kind'::text, 'attempt', 1))
    ) AS entry (path, what, detail)
)
SELECT input, NULL, NULL, labels, extract(epoch FROM deadline_at), extract(epoch FROM deadline_at - now()), priority,
       NULL, policies
FROM run
UNION ALL
SELECT NULL, workflow, version, labels, NULL, NULL, NULL,
       -- Too early or too late: the seconds until it is due, or -1 after its deadline. 0: a concurrent start changed
       -- the row after this statement read it; the next message decides.
       CASE WHEN token = :'token' AND status = 'pending' AND paused_at IS NULL
            THEN CASE WHEN deadline_at <= now() THEN -1
                      WHEN due_at > now() + interval '0.005 s' THEN extract(epoch FROM due_at - now())
                      WHEN NOT has_rules THEN 0 END END, policies
FROM rival_runs, LATERAL (SELECT :'without'::text IS NOT NULL
    AND (policies IS NOT NULL OR (labels IS NOT NULL AND :'without'::text = 'labels')) AS has_rules) AS rules
WHERE id = :'run_id' AND NOT EXISTS (SELECT FROM run)
  AND (NOT (:'workflow'::text IS NULL OR (workflow = :'workflow'::text AND version = :'version'::text))
       OR (token = :'token' AND status = 'pending' AND paused_at IS NULL
           AND (due_at > now() OR deadline_at <= now() OR gather_key IS NOT NULL OR has_rules)));

-- name: rival_claim_step
-- shortcuts: claim_step
-- Also for a flow or a delay whose time has come: the whole run may have waited with it. Not for a wait for an event:
-- its time is over then, and the wait must go.
WITH claimed AS (
    UPDATE rival_steps step
    SET status = 'running', attempts = attempts + 1, executor_id = :'executor', started_at = now(),
        execution_token = execution_token + 1, timeout_token = timeout_token + 1, rings = 0, parked = NULL,
        timeout_at = least(now() + make_interval(secs => :'timeout'), step.deadline_at),
        ring_at = least(now() + make_interval(secs => :'timeout'), step.deadline_at), start_by = NULL,
        policy = :'policy'::json
    FROM rival_runs run
    WHERE step.run_id = :'run_id' AND path = :'path' AND execution_token = :'token'
      AND step.status IN ('pending', 'waiting_retry', 'waiting')
      AND (step.status <> 'waiting' OR (step.kind <> 'wait' AND step.due_at IS NOT NULL))
      AND (step.due_at IS NULL OR step.due_at <= now() + interval '0.005 s')
      AND (SELECT pg_advisory_xact_lock_shared(hashtextextended(:'run_id'::text, 726356)) IS NOT NULL)
      AND coalesce(step.queue, 'default') = ANY(:'queues'::text[])
      AND (step.start_by IS NULL OR step.start_by > now()) AND (step.deadline_at IS NULL OR step.deadline_at > now())
      AND run.id = step.run_id AND run.status IN ('pending', 'running', 'suspended')
      AND NOT step.paused AND run.paused_at IS NULL
      AND (:'workflow'::text IS NULL OR (run.workflow = :'workflow'::text AND run.version = :'version'::text))
    RETURNING step.run_id, execution_token, timeout_token, attempts, lost, input, kind, labels,
              CASE WHEN run.error IS NULL THEN run.deadline_at END AS run_deadline, run.priority AS run_level,
              step.queue, coalesce(step.priority, run.priority) AS level, step.deadline_at, run.policies
), recorded AS (
    INSERT INTO rival_history (run_id, path, what, detail, actor, at)
    SELECT run_id, :'path', 'claimed', json_build_object('attempt', attempts), :'executor', now() FROM claimed
), resumed AS (
    UPDATE rival_runs run SET status = 'running' FROM claimed WHERE run.id = claimed.run_id AND run.status = 'suspended'
)
SELECT execution_token, timeout_token, attempts, lost, input, kind, labels, extract(epoch FROM run_deadline),
       extract(epoch FROM run_deadline - now()), run_level, queue, level, extract(epoch FROM deadline_at - now()),
       policies
FROM claimed;

-- name: rival_read_item
-- shortcuts: read_item
SELECT item FROM rival_steps WHERE run_id = :'run_id' AND path = :'path';

-- name: rival_ask_breaker
-- shortcuts: ask_breaker
-- NULL: a breaker whose row does not exist is closed.
SELECT
    (SELECT state FROM rival_breakers WHERE name = :'name'),
    (SELECT 1 FROM rival_breaker_waits WHERE name = :'name' LIMIT 1);

-- name: rival_finish_step_and_claim
-- shortcuts: finish_step
-- A step ends, and its executor continues with the next one. A step that uses a slot of a limit takes the portable
-- path, which releases the slot. New rows begin with the token of their run, which is higher than any token of rows
-- that a rewind deleted. A flow that left checkpoints open takes the portable path, which cancels them.
WITH done AS (
    UPDATE rival_steps step
    SET status = :'status', result = :'result'::json, state = :'state'::json, error = NULL, completed_at = now(),
        execution_token = execution_token + 1, timeout_token = timeout_token + 1, timeout_at = NULL, ring_at = NULL
    FROM rival_runs run
    WHERE step.run_id = :'run_id' AND path = :'path' AND execution_token = :'token' AND step.status = 'running'
      AND NOT paused AND step.slots IS NULL
      AND (SELECT pg_advisory_xact_lock_shared(hashtextextended(:'run_id'::text, 726356)) IS NOT NULL)
      AND run.id = step.run_id
      AND (kind <> 'flow' OR NOT EXISTS (
        SELECT FROM rival_steps open
        WHERE open.run_id = :'run_id' AND open.path >= :'path'::text || '/' AND open.path < :'path'::text || '0'
          AND open.status NOT IN ('completed', 'skipped', 'failed', 'cancelled')))
    RETURNING step.run_id, step.executor_id, step.attempts, step.started_at AS begun_at,
              step.policy AS own_policy, run.token
), attempt AS (
    INSERT INTO rival_attempts (run_id, path, token, attempt, outcome, executor_id, started_at, ended_at, policy)
    SELECT run_id, :'path', :'token', attempts, :'outcome', executor_id, begun_at, now(), own_policy
    FROM done WHERE attempts > 1
), recorded AS (
    INSERT INTO rival_history (run_id, path, what, detail, actor, at)
    SELECT run_id, entry.path, entry.what, entry.detail, executor_id, now()
    FROM done, LATERAL (VALUES
        (:'path', :'status'::text, :'own_detail'::json),
        (:'next_path', 'claimed', json_build_object('kind', :'next_kind'::text, 'attempt', 1))
    ) AS entry (path, what, detail)
)
INSERT INTO rival_steps (run_id, path, kind, status, attempts, execution_token, timeout_token, executor_id,
                         created_at, started_at, timeout_at, ring_at, policy)
SELECT run_id, :'next_path', :'next_kind', 'running', 1, token, token, :'executor', now(), now(),
       now() + make_interval(secs => :'timeout'), now() + make_interval(secs => :'timeout'),
           :'policy'::json
FROM done
RETURNING execution_token - 1;

-- name: rival_finish_step_and_open
-- shortcuts: finish_step
-- A step ends; a message starts the next one.
WITH done AS (
    UPDATE rival_steps step
    SET status = :'status', result = :'result'::json, state = :'state'::json, error = NULL, completed_at = now(),
        execution_token = execution_token + 1, timeout_token = timeout_token + 1, timeout_at = NULL, ring_at = NULL
    FROM rival_runs run
    WHERE step.run_id = :'run_id' AND path = :'path' AND execution_token = :'token' AND step.status = 'running'
      AND NOT paused AND step.slots IS NULL
      AND (SELECT pg_advisory_xact_lock_shared(hashtextextended(:'run_id'::text, 726356)) IS NOT NULL)
      AND run.id = step.run_id
      AND (kind <> 'flow' OR NOT EXISTS (
        SELECT FROM rival_steps open
        WHERE open.run_id = :'run_id' AND open.path >= :'path'::text || '/' AND open.path < :'path'::text || '0'
          AND open.status NOT IN ('completed', 'skipped', 'failed', 'cancelled')))
    RETURNING step.run_id, step.executor_id, step.attempts, step.started_at AS begun_at,
              step.policy AS own_policy, run.token
), attempt AS (
    INSERT INTO rival_attempts (run_id, path, token, attempt, outcome, executor_id, started_at, ended_at, policy)
    SELECT run_id, :'path', :'token', attempts, :'outcome', executor_id, begun_at, now(), own_policy
    FROM done WHERE attempts > 1
), recorded AS (
    INSERT INTO rival_history (run_id, path, what, detail, actor, at)
    SELECT run_id, entry.path, entry.what, entry.detail, executor_id, now()
    FROM done, LATERAL (VALUES
        (:'path', :'status'::text, :'own_detail'::json),
        (:'next_path', 'scheduled', json_build_object('kind', :'next_kind'::text))
    ) AS entry (path, what, detail)
)
INSERT INTO rival_steps (run_id, path, kind, status, execution_token, timeout_token, created_at, ring_at)
SELECT run_id, :'next_path', :'next_kind', 'pending', token - 1, token - 1, now(),
       now() + make_interval(secs => :'grace')
FROM done
RETURNING execution_token;

-- name: rival_finish_step_and_complete
-- shortcuts: finish_step
-- The last step ends, and its run with it. Not for a child, whose end resumes the parent.
WITH done AS (
    UPDATE rival_steps step
    SET status = :'status', result = :'result'::json, state = :'state'::json, error = NULL, completed_at = now(),
        execution_token = execution_token + 1, timeout_token = timeout_token + 1, timeout_at = NULL, ring_at = NULL
    FROM rival_runs run
    WHERE step.run_id = :'run_id' AND path = :'path' AND execution_token = :'token' AND step.status = 'running'
      AND NOT paused AND step.slots IS NULL
      AND (SELECT pg_advisory_xact_lock_shared(hashtextextended(:'run_id'::text, 726356)) IS NOT NULL)
      AND run.id = step.run_id AND run.parent_run_id IS NULL AND run.slots IS NULL
      AND (kind <> 'flow' OR NOT EXISTS (
        SELECT FROM rival_steps open
        WHERE open.run_id = :'run_id' AND open.path >= :'path'::text || '/' AND open.path < :'path'::text || '0'
          AND open.status NOT IN ('completed', 'skipped', 'failed', 'cancelled')))
    RETURNING step.run_id, step.executor_id, step.attempts, step.started_at AS begun_at, step.policy AS own_policy
), attempt AS (
    INSERT INTO rival_attempts (run_id, path, token, attempt, outcome, executor_id, started_at, ended_at, policy)
    SELECT run_id, :'path', :'token', attempts, :'outcome', executor_id, begun_at, now(), own_policy
    FROM done WHERE attempts > 1
), recorded AS (
    INSERT INTO rival_history (run_id, path, what, detail, actor, at)
    SELECT run_id, entry.path, entry.what, entry.detail, executor_id, now()
    FROM done, LATERAL (VALUES
        (:'path', :'status'::text, :'own_detail'::json),
        (NULL, 'completed', :'upper_detail'::json)
    ) AS entry (path, what, detail)
)
UPDATE rival_runs
SET status = 'completed', result = :'result'::json, completed_at = now(), token = token + 1, ring_at = NULL
FROM done
WHERE id = done.run_id AND status IN ('running', 'suspended')
RETURNING 0;

-- name: rival_finish_step_of_lane_and_claim
-- shortcuts: finish_step
-- A lane of a for_each ends and takes the next item. The composite is locked before anything is written, after the step
-- itself: from the leaf up. The last lane takes the portable path, which ends the composite.
WITH held AS (
    SELECT run_id, executor_id, attempts, started_at AS begun_at, policy AS own_policy FROM rival_steps
    WHERE run_id = :'run_id' AND path = :'path' AND execution_token = :'token' AND status = 'running' AND NOT paused
      AND slots IS NULL AND kind <> 'flow'
      AND (SELECT pg_advisory_xact_lock_shared(hashtextextended(:'run_id'::text, 726356)) IS NOT NULL)
    FOR UPDATE
), lane AS (
    SELECT composite.run_id, held.executor_id, held.attempts, held.begun_at,
           held.own_policy, composite.opened, run.token,
           composite.opened < composite.total AS goes_on
    FROM rival_steps composite JOIN held USING (run_id) JOIN rival_runs run ON run.id = held.run_id
    WHERE composite.path = :'join' AND composite.status = 'waiting' AND composite.remaining > 1
    FOR UPDATE OF composite
), joined AS (
    UPDATE rival_steps composite
    SET remaining = remaining - 1, opened = composite.opened + goes_on::int
    FROM lane WHERE composite.run_id = lane.run_id AND composite.path = :'join'
), ended AS (
    UPDATE rival_steps step
    SET status = CASE WHEN path = :'path' THEN :'status' ELSE 'completed' END, result = :'result'::json,
        state = CASE WHEN path = :'path' THEN :'state'::json END, error = NULL, completed_at = now(),
        execution_token = execution_token + 1, timeout_token = timeout_token + (path = :'path')::int,
        timeout_at = NULL, ring_at = NULL
    FROM lane WHERE step.run_id = lane.run_id AND step.path IN (:'path', :'item')
), attempt AS (
    INSERT INTO rival_attempts (run_id, path, token, attempt, outcome, executor_id, started_at, ended_at, policy)
    SELECT run_id, :'path', :'token', attempts, :'outcome', executor_id, begun_at, now(), own_policy
    FROM lane WHERE attempts > 1
), next AS (
    INSERT INTO rival_steps (run_id, path, kind, status, attempts, execution_token, timeout_token, executor_id,
                             created_at, started_at, timeout_at, ring_at, policy)
    SELECT run_id, :'join' || '[' || opened || :'next_path', :'next_kind', 'running', 1, token, token, :'executor',
           now(), now(), now() + make_interval(secs => :'timeout'), now() + make_interval(secs => :'timeout'),
           :'policy'::json
    FROM lane WHERE goes_on
), recorded AS (
    INSERT INTO rival_history (run_id, path, what, detail, actor, at)
    SELECT run_id, entry.path, entry.what, entry.detail, executor_id, now()
    FROM lane, LATERAL (VALUES
        (:'path', :'status'::text, :'own_detail'::json),
        (:'item', 'completed', :'upper_detail'::json),
        (:'join' || '[' || opened || :'next_path', 'claimed',
         json_build_object('kind', :'next_kind'::text, 'attempt', 1))
    ) AS entry (path, what, detail)
    WHERE goes_on OR entry.what <> 'claimed'
)
SELECT CASE WHEN goes_on THEN opened END, token - 1 FROM lane;

-- name: rival_finish_step_of_lane_and_open
-- shortcuts: finish_step
-- Like rival_finish_step_of_lane_and_claim; a message starts the next item.
WITH held AS (
    SELECT run_id, executor_id, attempts, started_at AS begun_at, policy AS own_policy FROM rival_steps
    WHERE run_id = :'run_id' AND path = :'path' AND execution_token = :'token' AND status = 'running' AND NOT paused
      AND slots IS NULL AND kind <> 'flow'
      AND (SELECT pg_advisory_xact_lock_shared(hashtextextended(:'run_id'::text, 726356)) IS NOT NULL)
    FOR UPDATE
), lane AS (
    SELECT composite.run_id, held.executor_id, held.attempts, held.begun_at,
           held.own_policy, composite.opened, run.token,
           composite.opened < composite.total AS goes_on
    FROM rival_steps composite JOIN held USING (run_id) JOIN rival_runs run ON run.id = held.run_id
    WHERE composite.path = :'join' AND composite.status = 'waiting' AND composite.remaining > 1
    FOR UPDATE OF composite
), joined AS (
    UPDATE rival_steps composite
    SET remaining = remaining - 1, opened = composite.opened + goes_on::int
    FROM lane WHERE composite.run_id = lane.run_id AND composite.path = :'join'
), ended AS (
    UPDATE rival_steps step
    SET status = CASE WHEN path = :'path' THEN :'status' ELSE 'completed' END, result = :'result'::json,
        state = CASE WHEN path = :'path' THEN :'state'::json END, error = NULL, completed_at = now(),
        execution_token = execution_token + 1, timeout_token = timeout_token + (path = :'path')::int,
        timeout_at = NULL, ring_at = NULL
    FROM lane WHERE step.run_id = lane.run_id AND step.path IN (:'path', :'item')
), attempt AS (
    INSERT INTO rival_attempts (run_id, path, token, attempt, outcome, executor_id, started_at, ended_at, policy)
    SELECT run_id, :'path', :'token', attempts, :'outcome', executor_id, begun_at, now(), own_policy
    FROM lane WHERE attempts > 1
), next AS (
    INSERT INTO rival_steps (run_id, path, kind, status, execution_token, timeout_token, created_at, ring_at)
    SELECT run_id, :'join' || '[' || opened || :'next_path', :'next_kind', 'pending', token - 1, token - 1, now(),
           now() + make_interval(secs => :'grace')
    FROM lane WHERE goes_on
), recorded AS (
    INSERT INTO rival_history (run_id, path, what, detail, actor, at)
    SELECT run_id, entry.path, entry.what, entry.detail, executor_id, now()
    FROM lane, LATERAL (VALUES
        (:'path', :'status'::text, :'own_detail'::json),
        (:'item', 'completed', :'upper_detail'::json),
        (:'join' || '[' || opened || :'next_path', 'scheduled', json_build_object('kind', :'next_kind'::text))
    ) AS entry (path, what, detail)
    WHERE goes_on OR entry.what <> 'scheduled'
)
SELECT CASE WHEN goes_on THEN opened END, token - 1 FROM lane;
