-- Flows: what a flow commits most often, each one statement (or a lock and a statement), one round trip and one commit.
--
-- Parameters are psql variables: set them (\set run_id order-1) and paste the statement into psql. 726356 is the number
-- of the locks of runs (rival_client/db/locks.py).

-- name: rival_read_checkpoints
-- shortcuts: read_checkpoints
-- All of them as one value: a result row for each would be decoded column by column.
SELECT (SELECT state FROM rival_steps WHERE run_id = :'run_id' AND path = :'flow'), (
    SELECT json_agg(json_build_array(
        path, kind, status, opened, attempts, result, error, extract(epoch FROM due_at - now()), end_order,
        extract(epoch FROM completed_at), CASE WHEN json_typeof(item) = 'string' THEN item END, begun_after
    ))
    FROM rival_steps
    WHERE run_id = :'run_id' AND path > :'flow'::text || '/' AND path < :'flow'::text || '0' AND opened IS NOT NULL
);

-- name: rival_record_checkpoint
-- shortcuts: record_checkpoint
-- The row lock keeps the flow's step with this attempt until the commit. A checkpoint that has ended stays as it is,
-- and gets no second history entry. Only a commit with a history entry resets the count of losses and stores the state
-- of the flow. :state is NULL if the state has not changed: then the row of the flow is not written.
WITH held AS (
    SELECT run_id, path, executor_id FROM rival_steps
    WHERE run_id = :'run_id' AND path = :'flow' AND execution_token = :'token' AND status = 'running' AND NOT paused
      AND (SELECT pg_advisory_xact_lock_shared(hashtextextended(:'run_id'::text, 726356)) IS NOT NULL)
    FOR UPDATE
), written AS (
    INSERT INTO rival_steps AS step (run_id, path, kind, opened, begun_after, end_order, status, result, error,
                                     attempts, execution_token, due_at, created_at, started_at, completed_at)
    SELECT run_id, :'path'::text, :'kind'::text, :'number'::int, :'begun_after'::int, :'end_order'::int,
           :'status'::text, :'result'::json, :'error'::json, :'attempts'::int,
           :'token'::int, now() + make_interval(secs => :'delay'), now(), now(),
           CASE WHEN :'status'::text IN ('completed', 'skipped', 'failed', 'cancelled') THEN now() END
    FROM held
    ON CONFLICT (run_id, path) DO UPDATE
    SET status = excluded.status, result = excluded.result, error = excluded.error, attempts = excluded.attempts,
        completed_at = excluded.completed_at, due_at = excluded.due_at, end_order = excluded.end_order
    WHERE step.status NOT IN ('completed', 'skipped', 'failed', 'cancelled')
    RETURNING run_id, path, completed_at
), recorded AS (
    INSERT INTO rival_history (run_id, path, what, detail, actor, at)
    SELECT written.run_id, written.path, :'what'::text, :'detail'::json, executor_id, now() FROM written, held
), flow AS (
    UPDATE rival_steps step SET lost = 0, state = coalesce(:'state'::json, step.state) FROM held, written
    WHERE step.run_id = held.run_id AND step.path = held.path AND (step.lost > 0 OR :'state'::json IS NOT NULL)
)
SELECT coalesce(extract(epoch FROM coalesce(
    (SELECT completed_at FROM written),
    (SELECT completed_at FROM rival_steps WHERE run_id = :'run_id' AND path = :'path')
)), 0) FROM held;

-- part: ended_steps
WITH held AS (
    SELECT run_id, path, executor_id FROM rival_steps
    WHERE run_id = :'run_id' AND path = :'flow' AND execution_token = :'token' AND status = 'running' AND NOT paused
      AND (SELECT pg_advisory_xact_lock_shared(hashtextextended(:'run_id'::text, 726356)) IS NOT NULL)
    FOR UPDATE
), write AS (
    SELECT * FROM json_to_recordset(:'writes'::json) AS one (
        path text, kind text, number int, begun_after int, end_order int, status text, result json, error json,
        attempts int, what text, detail json, flow_state json
    )
), written AS (
    INSERT INTO rival_steps (run_id, path, kind, opened, begun_after, end_order, status, result, error, attempts,
                             execution_token, created_at, started_at, completed_at)
    SELECT run_id, write.path, kind, number, begun_after, end_order, status,
           CASE WHEN error IS NULL THEN coalesce(result, 'null') END, error, attempts, :'token'::int,
           now(), now(), now()
    FROM held, write
    ON CONFLICT (run_id, path) DO NOTHING
    RETURNING run_id, path
), recorded AS (
    INSERT INTO rival_history (run_id, path, what, detail, actor, at)
    SELECT written.run_id, written.path, what, detail, executor_id, now()
    FROM written JOIN write ON write.path = written.path CROSS JOIN held
    ORDER BY end_order
), stated AS (
    SELECT flow_state FROM written JOIN write ON write.path = written.path WHERE flow_state IS NOT NULL
), flow AS (
    UPDATE rival_steps step SET lost = 0, state = coalesce((SELECT flow_state FROM stated), step.state) FROM held
    WHERE step.run_id = held.run_id AND step.path = held.path AND EXISTS (SELECT FROM written)
      AND (step.lost > 0 OR EXISTS (SELECT FROM stated))
)
SELECT extract(epoch FROM now()), (SELECT count(*) FROM written) FROM held

-- name: rival_commit_flow_ends
-- shortcuts: commit_flow
-- The same for several steps that ended in parallel. Rows that exist stay; the caller compares the count.
:{ended_steps};

-- name: rival_record_checkpoints_in_turn
-- shortcuts: record_checkpoints
-- The same for inline steps, which ended one after the other.
:{ended_steps};

-- name: rival_commit_flow_receipt
-- shortcuts: commit_flow
-- A flow that waits for one checkpoint receives its end. The checkpoint is locked before the flow, see flow_commits.py.
WITH leaf AS (
    SELECT run_id, path, status = 'waiting' AS is_due FROM rival_steps
    WHERE run_id = :'run_id' AND path = :'path' AND end_order IS NULL AND opened IS NOT NULL
      AND (SELECT pg_advisory_xact_lock_shared(hashtextextended(:'run_id'::text, 726356)) IS NOT NULL)
      AND (status IN ('completed', 'skipped', 'failed') OR (
        status = 'waiting' AND kind = 'sleep' AND due_at <= now() + make_interval(secs => 0.005)))
    FOR UPDATE
), held AS (
    SELECT flow.run_id, flow.path, flow.executor_id FROM leaf CROSS JOIN rival_steps flow
    WHERE flow.run_id = :'run_id' AND flow.path = :'flow' AND flow.execution_token = :'token'
      AND flow.status = 'running' AND NOT flow.paused
    FOR UPDATE OF flow
), received AS (
    UPDATE rival_steps step
    SET end_order = :'end_order'::int, status = CASE WHEN is_due THEN 'completed' ELSE status END,
        completed_at = coalesce(completed_at, now()), execution_token = execution_token + is_due::int
    FROM leaf, held
    WHERE step.run_id = leaf.run_id AND step.path = leaf.path
    RETURNING step.run_id, step.path, step.kind, step.status, step.opened, step.attempts, step.result, step.error,
              step.completed_at, step.item, is_due, held.executor_id
), recorded AS (
    INSERT INTO rival_history (run_id, path, what, detail, actor, at)
    SELECT run_id, path, CASE WHEN is_due THEN 'completed' ELSE 'received' END,
           :'detail'::json, executor_id, now()
    FROM received
), flow AS (
    UPDATE rival_steps step SET lost = 0, state = coalesce(:'state'::json, step.state) FROM held, received
    WHERE step.run_id = held.run_id AND step.path = held.path AND (step.lost > 0 OR :'state'::json IS NOT NULL)
)
SELECT path, kind, status, opened, attempts, result, error, extract(epoch FROM completed_at) FROM received;

-- name: rival_commit_flow_sleep
-- shortcuts: commit_flow
-- A flow that has nothing else to do begins a sleep and is suspended, and its run with it: nothing else of a run is open
-- beside a flow that is not part of a composite. Nothing changes if the checkpoint has a row.
WITH held AS (
    SELECT run_id, path, executor_id FROM rival_steps
    WHERE run_id = :'run_id' AND path = :'flow' AND execution_token = :'token' AND status = 'running' AND NOT paused
      AND slots IS NULL
      AND (SELECT pg_advisory_xact_lock_shared(hashtextextended(:'run_id'::text, 726356)) IS NOT NULL)
    FOR UPDATE
), sleep AS (
    INSERT INTO rival_steps (run_id, path, kind, opened, begun_after, status, attempts, execution_token, due_at,
                             created_at, started_at)
    SELECT run_id, :'path'::text, 'sleep', :'number'::int, :'begun_after'::int, 'waiting', :'attempts'::int,
           :'token'::int, now() + make_interval(secs => :'delay'), now(), now()
    FROM held
    ON CONFLICT (run_id, path) DO NOTHING
    RETURNING due_at
), flow AS (
    UPDATE rival_steps step
    SET status = 'waiting', execution_token = execution_token + 1, timeout_token = timeout_token + 1,
        timeout_at = NULL, attempts = step.attempts - 1, lost = 0, due_at = sleep.due_at,
        ring_at = now() + make_interval(secs => :'look'), rings = :'rings'::int,
        state = coalesce(:'state'::json, step.state)
    FROM held, sleep
    WHERE step.run_id = held.run_id AND step.path = held.path
    RETURNING step.run_id, step.path, step.execution_token, step.due_at, held.executor_id
), run AS (
    UPDATE rival_runs run SET status = 'suspended'
    FROM flow
    WHERE run.id = flow.run_id AND run.status = 'running'
    RETURNING run.status
), recorded AS (
    INSERT INTO rival_history (run_id, path, what, detail, actor, at)
    SELECT flow.run_id, entry.path, entry.what, entry.detail, executor_id, now()
    FROM flow LEFT JOIN run ON true, LATERAL (VALUES
        (:'path'::text, 'waiting', :'detail'::json, 1),
        (flow.path, 'suspended', CASE WHEN run.status IS NULL THEN json_build_object('seconds', :'delay'::float8)
            ELSE json_build_object('seconds', :'delay'::float8, 'run', run.status) END, 2)
    ) AS entry (path, what, detail, place)
    ORDER BY entry.place
)
SELECT execution_token, extract(epoch FROM due_at), extract(epoch FROM clock_timestamp()) FROM flow;

-- name: rival_lock_run
-- A separate statement: the next one must see what was committed while this one waited.
SELECT pg_advisory_xact_lock(hashtextextended(:'run_id'::text, 726356));

-- part: below_flow
(path = :'flow'
        OR (path >= :'flow'::text || '/' AND path < :'flow'::text || '0')
        OR (path >= :'flow'::text || '[' AND path < :'flow'::text || '\')
        OR (path >= :'flow'::text || '!' AND path < :'flow'::text || '"'))

-- part: without_past
-- Deletes what the flow did so far. Kept: rows of other steps, history entries about the whole run, and deliveries of
-- broadcast events (each run gets those once). Ended children are detached: a run that continues forever must not keep
-- all of them.
checkpoints AS (
    DELETE FROM rival_steps WHERE run_id = :'run_id' AND EXISTS (SELECT FROM step)
      AND ((path >= :'flow'::text || '/' AND path < :'flow'::text || '0')
        OR (path >= :'flow'::text || '[' AND path < :'flow'::text || '\')
        OR (path >= :'flow'::text || '!' AND path < :'flow'::text || '"'))
), past_attempts AS (
    DELETE FROM rival_attempts WHERE run_id = :'run_id' AND EXISTS (SELECT FROM step) AND :{below_flow}
), lines AS (
    DELETE FROM rival_logs WHERE run_id = :'run_id' AND EXISTS (SELECT FROM step) AND :{below_flow}
), waiting AS (
    DELETE FROM rival_waits WHERE run_id = :'run_id' AND EXISTS (SELECT FROM step) AND :{below_flow}
), received AS (
    DELETE FROM rival_deliveries WHERE run_id = :'run_id' AND EXISTS (SELECT FROM step) AND :{below_flow}
      AND NOT EXISTS (SELECT FROM rival_events WHERE id = event_id AND delivery = 'all')
), entries AS (
    DELETE FROM rival_history WHERE run_id = :'run_id' AND EXISTS (SELECT FROM step) AND :{below_flow}
      AND what NOT IN ('retry_run', 'rewind_run')
), ended AS (
    SELECT id FROM rival_runs
    WHERE parent_run_id = :'run_id' AND parent_path >= :'flow'::text || '/' AND parent_path < :'flow'::text || '0'
      AND status IN ('completed', 'failed', 'cancelled') AND EXISTS (SELECT FROM step)
    FOR UPDATE SKIP LOCKED
), children AS (
    UPDATE rival_runs SET parent_run_id = NULL, parent_path = NULL WHERE id IN (SELECT id FROM ended)
)

-- part: continued_detail
CASE WHEN state IS NULL THEN json_build_object('kind', kind, 'item', :'input'::json)
             ELSE json_build_object('kind', kind, 'item', :'input'::json, 'state', state) END

-- name: rival_continue_flow
-- shortcuts: continue_flow
-- A flow starts over; a message starts its next attempt.
WITH step AS (
    UPDATE rival_steps
    SET status = 'pending', execution_token = execution_token + 1, timeout_token = timeout_token + 1,
        timeout_at = NULL, attempts = 0, lost = 0, item = :'input'::json, due_at = NULL, rings = 0,
        ring_at = now() + make_interval(secs => :'grace'), state = coalesce(:'state'::json, state)
    WHERE run_id = :'run_id' AND path = :'flow' AND execution_token = :'token' AND status = 'running'
      AND slots IS NULL
    RETURNING run_id, path, execution_token, executor_id, kind, state
), :{without_past}, recorded AS (
    INSERT INTO rival_history (run_id, path, what, detail, actor, at)
    SELECT run_id, path, 'continued', :{continued_detail}, executor_id, now()
    FROM step
)
SELECT execution_token, NULL FROM step;

-- name: rival_continue_flow_and_claim
-- shortcuts: continue_flow
-- A flow starts over, and its executor continues it: the row stays running, under the token of the next attempt.
WITH step AS (
    UPDATE rival_steps step
    SET execution_token = execution_token + 1, timeout_token = timeout_token + 1, attempts = 1, lost = 0,
        executor_id = :'executor', started_at = now(), item = :'input'::json, due_at = NULL, rings = 0, parked = NULL,
        start_by = NULL, timeout_at = least(now() + make_interval(secs => :'timeout'), step.deadline_at),
        ring_at = least(now() + make_interval(secs => :'timeout'), step.deadline_at), policy = :'policy'::json,
        state = coalesce(:'state'::json, step.state)
    FROM rival_runs run
    WHERE step.run_id = :'run_id' AND path = :'flow' AND execution_token = :'token' AND step.status = 'running'
      AND step.slots IS NULL AND coalesce(step.queue, 'default') = ANY(:'queues'::text[])
      AND (step.start_by IS NULL OR step.start_by > now()) AND (step.deadline_at IS NULL OR step.deadline_at > now())
      AND run.id = step.run_id AND run.status IN ('pending', 'running', 'suspended')
      AND NOT step.paused AND run.paused_at IS NULL
    RETURNING step.run_id, path, execution_token, timeout_token, kind, step.state
), :{without_past}, recorded AS (
    INSERT INTO rival_history (run_id, path, what, detail, actor, at)
    SELECT run_id, path, entry.what, entry.detail, :'executor', now()
    FROM step, LATERAL (VALUES
        ('continued', :{continued_detail}),
        ('claimed', json_build_object('attempt', 1))
    ) AS entry (what, detail)
)
SELECT execution_token, timeout_token FROM step;
