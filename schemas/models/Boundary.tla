------------------------------ MODULE Boundary ------------------------------
(***************************************************************************)
(* Numbered files, created with create-if-absent, and the boundary that    *)
(* forbids the ids that a collector may have deleted.                      *)
(*                                                                         *)
(* Source: docs/reference/protocol.md 1 and 2.  docs/concepts/models.md    *)
(* says what is modelled and what is left out.                             *)
(***************************************************************************)
EXTENDS Naturals, FiniteSets

CONSTANTS
    Writers,      \* processes that commit versions
    Collectors,   \* processes that delete old versions
    MaxId,        \* the highest id of a file
    MaxWrites,    \* commits that a writer attempts
    MaxLate,      \* requests that are in flight while their writer goes on
    Mutation      \* the defect of this run, or "none"

VARIABLES
    files,        \* the effects in each file that exists, by id
    boundary,     \* the durable boundary; 0: it was never written
    writer,       \* the state of each writer
    collector,    \* the state of each collector
    late,         \* creates that were sent and may still take effect
    acked,        \* effects that were reported as committed
    staleRead     \* whether a read returned less than was committed before it

vars == <<files, boundary, writer, collector, late, acked, staleRead>>

Ids == 1..MaxId
NotRead == MaxId + 1
Max(numbers) == CHOOSE n \in numbers : \A other \in numbers : other <= n
Existing == DOMAIN files
With(id, content) == [i \in Existing \cup {id} |-> IF i = id THEN content ELSE files[i]]
Without(id) == [i \in Existing \ {id} |-> files[i]]
Latest == Max(Existing)

(***************************************************************************)
(* A writer's `state`: "new" has no base; "probing" looks for later files; *)
(* "read" has a base that it has not compared with the boundary;           *)
(* "checked" has; "created" has created the file after its base;           *)
(* "committed" has reported that file.  `saw` is the boundary that it has  *)
(* compared with its file, and `cache` the last one that it has read.      *)
(***************************************************************************)
NewWriter == [state |-> "new", id |-> 0, base |-> {}, number |-> 0, cache |-> 0,
              saw |-> NotRead, mustSee |-> {}]
NewCollector == [state |-> "idle", target |-> 0, cache |-> 0]

Effect(w) == <<w, writer[w].number>>

(* Boundaries only grow, so a cached one may reject.  Only the defect lets it admit. *)
Cached(seen, before) == IF Mutation = "cached boundary admits" /\ seen # NotRead THEN seen ELSE before

Init ==
    /\ files = [i \in {1} |-> {}]
    /\ boundary = 0
    /\ writer = [w \in Writers |-> NewWriter]
    /\ collector = [c \in Collectors |-> NewCollector]
    /\ late = {}
    /\ acked = {}
    /\ staleRead = FALSE

-----------------------------------------------------------------------------
(* Reading the latest file: a listing, or probes from the known file on. *)

MayRead(w) == writer[w].state \in {"new", "probing", "read", "checked", "committed"}

List(w) ==
    /\ MayRead(w)
    /\ writer' = [writer EXCEPT ![w].state = "read", ![w].id = Latest, ![w].base = files[Latest],
                                ![w].mustSee = acked, ![w].saw = NotRead]
    /\ UNCHANGED <<files, boundary, collector, late, acked, staleRead>>

ProbeHit(w) ==
    LET next == writer[w].id + 1 IN
    /\ MayRead(w) /\ writer[w].id > 0
    /\ next \in Existing
    /\ writer' = [writer EXCEPT ![w].state = "probing", ![w].id = next, ![w].base = files[next],
                                ![w].mustSee = {}, ![w].saw = NotRead]
    /\ UNCHANGED <<files, boundary, collector, late, acked, staleRead>>

(* No next file: the known one is the latest, or a collector has deleted the next one. *)
ProbeMiss(w) ==
    /\ MayRead(w) /\ writer[w].id > 0
    /\ writer[w].id + 1 \notin Existing
    /\ writer' = [writer EXCEPT ![w].state = "read", ![w].mustSee = acked, ![w].saw = NotRead]
    /\ UNCHANGED <<files, boundary, collector, late, acked, staleRead>>

Forgotten(w) == [writer[w] EXCEPT !.state = "new", !.id = 0, !.base = {}, !.mustSee = {},
                                  !.saw = NotRead]

CheckRead(w) ==
    LET seen == boundary IN
    /\ writer[w].state = "read"
    /\ IF writer[w].id > seen \/ Mutation = "no check on read"
       THEN /\ writer' = [writer EXCEPT ![w].state = "checked", ![w].cache = Cached(seen, @), ![w].mustSee = {}]
            /\ staleRead' = (staleRead \/ ~(writer[w].mustSee \subseteq writer[w].base))
       ELSE /\ writer' = [writer EXCEPT ![w] = [Forgotten(w) EXCEPT !.cache = Cached(seen, @)]]
            /\ UNCHANGED staleRead
    /\ UNCHANGED <<files, boundary, collector, late, acked>>

-----------------------------------------------------------------------------
(* Committing: create the file after the base, then read the boundary. *)

MayCreate(w) ==
    /\ writer[w].state \in {"read", "checked", "committed"}
    /\ Mutation = "check before create" => writer[w].state # "read"
    /\ writer[w].number < MaxWrites
    /\ writer[w].id < MaxId
    /\ Effect(w) \notin writer[w].base

Content(w) == writer[w].base \cup {Effect(w)}

Create(w) ==
    LET id == writer[w].id + 1 IN
    /\ MayCreate(w)
    /\ id \notin Existing
    /\ files' = With(id, Content(w))
    /\ writer' = [writer EXCEPT ![w].state = "created", ![w].id = id, ![w].base = Content(w),
                                ![w].mustSee = {}, ![w].saw = NotRead]
    /\ UNCHANGED <<boundary, collector, late, acked, staleRead>>

(* The answer to a create was lost, or is late: the request may still take effect, once more. *)
Delay(w) ==
    /\ MayCreate(w)
    /\ Cardinality(late) < MaxLate
    /\ late' = late \cup {[id |-> writer[w].id + 1, content |-> Content(w)]}
    /\ UNCHANGED <<files, boundary, writer, collector, acked, staleRead>>

Arrive(request) ==
    /\ late' = late \ {request}
    /\ files' = IF request.id \in Existing THEN files ELSE With(request.id, request.content)
    /\ UNCHANGED <<boundary, writer, collector, acked, staleRead>>

Conflict(w) ==
    /\ MayCreate(w)
    /\ writer[w].id + 1 \in Existing
    /\ writer' = [writer EXCEPT ![w].state = "probing", ![w].mustSee = {}, ![w].saw = NotRead]
    /\ UNCHANGED <<files, boundary, collector, late, acked, staleRead>>

Acknowledge(w, known) ==
    /\ acked' = acked \cup {Effect(w)}
    /\ writer' = [writer EXCEPT ![w].state = "committed", ![w].number = @ + 1, ![w].saw = known,
                                ![w].cache = Cached(known, @)]
    /\ UNCHANGED <<files, boundary, collector, late, staleRead>>

Reject(w, known) ==
    /\ writer' = [writer EXCEPT ![w] = [Forgotten(w) EXCEPT !.cache = Cached(known, @)]]
    /\ UNCHANGED <<files, boundary, collector, late, acked, staleRead>>

CheckCreate(w) ==
    /\ writer[w].state = "created"
    /\ CASE Mutation = "no check after create" -> Acknowledge(w, NotRead)
         [] Mutation = "check before create" -> Acknowledge(w, NotRead)
         [] Mutation = "cached boundary admits" /\ writer[w].cache > 0 ->
                IF writer[w].id > writer[w].cache THEN Acknowledge(w, NotRead)
                                                  ELSE Reject(w, writer[w].cache)
         [] OTHER -> IF writer[w].id > boundary THEN Acknowledge(w, boundary) ELSE Reject(w, boundary)

(* The answer to the create was lost, and nothing tells the file from one of another writer. *)
Doubt(w) ==
    /\ writer[w].state = "created"
    /\ writer' = [writer EXCEPT ![w].state = "probing"]
    /\ UNCHANGED <<files, boundary, collector, late, acked, staleRead>>

(* The effect is in the latest version already: it was rejected, but another writer had built on it. *)
FindOwnEffect(w) ==
    /\ writer[w].state \in {"checked", "committed"}
    /\ Effect(w) \in writer[w].base
    /\ acked' = acked \cup {Effect(w)}
    /\ writer' = [writer EXCEPT ![w].number = @ + 1]
    /\ UNCHANGED <<files, boundary, collector, late, staleRead>>

(* The process is killed; its successor has other effects. *)
Restart(w) ==
    /\ writer[w].number < MaxWrites
    /\ writer' = [writer EXCEPT ![w] = [NewWriter EXCEPT !.number = writer[w].number + 1]]
    /\ UNCHANGED <<files, boundary, collector, late, acked, staleRead>>

-----------------------------------------------------------------------------
(* Collecting: list, advance the boundary to the highest id to delete, delete. *)

ListOld(c, target) ==
    /\ collector[c].state = "idle"
    /\ target \in Existing
    /\ Mutation # "advance to the latest" => target # Latest
    /\ collector' = [collector EXCEPT ![c].target = target,
                         ![c].state = IF Mutation = "delete before advance" THEN "deleting" ELSE "listed"]
    /\ UNCHANGED <<files, boundary, writer, late, acked, staleRead>>

ReadBoundary(c) ==
    /\ collector[c].state = "listed"
    /\ collector' = [collector EXCEPT ![c].state = "advancing", ![c].cache = boundary]
    /\ UNCHANGED <<files, boundary, writer, late, acked, staleRead>>

(* The boundary is replaced only if it is the one that was read. *)
Advance(c) ==
    LET mayWrite == boundary = collector[c].cache \/ Mutation = "boundary goes back"
        isNeeded == collector[c].cache < collector[c].target \/ Mutation = "boundary goes back"
    IN
    /\ collector[c].state = "advancing"
    /\ IF ~isNeeded \/ mayWrite
       THEN /\ boundary' = IF isNeeded THEN collector[c].target ELSE boundary
            /\ collector' = [collector EXCEPT ![c].state = "deleting", ![c].cache = 0]
       ELSE /\ collector' = [collector EXCEPT ![c].state = "listed", ![c].cache = 0]
            /\ UNCHANGED boundary
    /\ UNCHANGED <<files, writer, late, acked, staleRead>>

Delete(c, id) ==
    /\ collector[c].state = "deleting"
    /\ id \in Existing
    /\ id <= collector[c].target
    /\ id # Latest
    /\ files' = Without(id)
    /\ UNCHANGED <<boundary, writer, collector, late, acked, staleRead>>

(* The pass ends: it is done, keeps some files for checkpoints, or is killed. *)
Stop(c) ==
    /\ collector[c].state # "idle"
    /\ IF Mutation = "delete before advance" /\ collector[c].state = "deleting"
       THEN collector' = [collector EXCEPT ![c].state = "listed"]
       ELSE collector' = [collector EXCEPT ![c] = NewCollector]
    /\ UNCHANGED <<files, boundary, writer, late, acked, staleRead>>

-----------------------------------------------------------------------------
WriterStep(w) ==
    \/ List(w) \/ ProbeHit(w) \/ ProbeMiss(w) \/ CheckRead(w)
    \/ Create(w) \/ Conflict(w) \/ Delay(w) \/ CheckCreate(w) \/ Doubt(w)
    \/ FindOwnEffect(w) \/ Restart(w)

CollectorStep(c) ==
    \/ \E id \in Ids : ListOld(c, id) \/ Delete(c, id)
    \/ ReadBoundary(c) \/ Advance(c) \/ Stop(c)

Next ==
    \/ \E w \in Writers : WriterStep(w)
    \/ \E c \in Collectors : CollectorStep(c)
    \/ \E request \in late : Arrive(request)

Spec == Init /\ [][Next]_vars

-----------------------------------------------------------------------------
(* The three invariants of the design. *)

(* 1. Before a file is deleted, the boundary is at or above its id. *)
DeletesOnlyBehindBoundary == [][\A id \in DOMAIN files \ DOMAIN files' : id <= boundary]_vars

(* 2. A write is reported only if the boundary, read after the create, was below its id. *)
CommittedWasAboveBoundary ==
    \A w \in Writers : writer[w].state = "committed" => writer[w].saw < writer[w].id

(* 3. The boundary never goes back. *)
BoundaryNeverGoesBack == [][boundary' >= boundary]_vars

-----------------------------------------------------------------------------
(* What they are for. *)

(* The latest version holds every effect that was reported as committed. *)
NoCommitIsLost == acked \subseteq files[Latest]

(* A read returns everything that was committed before it began. *)
NoReadIsStale == ~staleRead

(* Otherwise no version could be read any more. *)
BoundaryIsBelowLatest == boundary < Latest
=============================================================================
