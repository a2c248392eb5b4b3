---------------------------- MODULE BoundaryTrace ----------------------------
(***************************************************************************)
(* Requests of the real code, in the order in which they took effect, as a *)
(* run of Boundary.  An event is a tuple of five: what, process, id,       *)
(* whether it succeeded or found the file, number of the effect.           *)
(*   "list", "get" (a file), "read" (the boundary), "create" (a file),     *)
(*   "advance" (the boundary), "delete" (a file), "ack" (an effect)        *)
(* A request that changes nothing may also mean nothing.                   *)
(***************************************************************************)
EXTENDS Boundary, Sequences, TLC

CONSTANTS
    Traces,       \* each a sequence of events
    Founders      \* the process that created file 1 of each trace

VARIABLES
    which,        \* the trace
    step,         \* its next event
    known         \* all contents that each file has had

traceVars == <<vars, which, step, known>>

TraceInit ==
    /\ Init
    /\ which \in 1..Len(Traces)
    /\ step = 1
    /\ known = [i \in Ids |-> IF i = 1 THEN {{}} ELSE {}]

TraceEvent == Traces[which][step]
Process == TraceEvent[2]
Id == TraceEvent[3]
Succeeded == TraceEvent[4]
Number == TraceEvent[5]

Nothing == UNCHANGED vars

-----------------------------------------------------------------------------
(* Steps that send no request; only those of the process whose event is next. *)

KnowsFirst(w) ==
    /\ writer[w].state = "new"
    /\ w = Founders[which] /\ 1 \in Existing /\ writer[w].number = 0 /\ files[1] = {}
    /\ writer' = [writer EXCEPT ![w].state = "checked", ![w].id = 1]
    /\ UNCHANGED <<files, boundary, collector, late, acked, staleRead>>

SilentWriter(w) ==
    \/ KnowsFirst(w)
    \/ ProbeHit(w)
    \/ Doubt(w)
    \/ writer[w].id <= boundary /\ (CheckRead(w) \/ CheckCreate(w))

Silent == Process \in Writers /\ SilentWriter(Process)

-----------------------------------------------------------------------------
(* A create that was sent long ago, when w was at the version before. *)
ArriveLate(w) ==
    /\ ~(MayCreate(w) /\ writer[w].id + 1 = Id /\ writer[w].number = Number)
    /\ Id > 1 /\ Id \notin Existing
    /\ \E base \in known[Id - 1] : files' = With(Id, base \cup {<<w, Number>>})
    /\ UNCHANGED <<boundary, writer, collector, late, acked, staleRead>>

OfWriter(w) ==
    CASE TraceEvent[1] = "list" -> Nothing \/ List(w)
      [] TraceEvent[1] = "get" ->
             \/ Nothing
             \/ (Id = writer[w].id + 1 /\ IF Succeeded THEN ProbeHit(w) ELSE ProbeMiss(w))
      [] TraceEvent[1] = "read" -> Nothing \/ CheckRead(w) \/ CheckCreate(w)
      [] TraceEvent[1] = "create" ->
             IF Succeeded
             THEN /\ \/ Create(w) /\ writer[w].id + 1 = Id /\ writer[w].number = Number
                     \/ ArriveLate(w)
                  /\ <<w, Number>> \in files'[Id]
             ELSE Id \in Existing /\ (Nothing \/ (Conflict(w) /\ writer[w].id + 1 = Id))
      [] TraceEvent[1] = "ack" ->
             \/ <<w, Number>> \in acked /\ Nothing
             \/ FindOwnEffect(w) /\ writer[w].number = Number
      [] OTHER -> FALSE

(***************************************************************************)
(* A collector of the model may stop and begin again at any time.  So each *)
(* of its two effects may be a pass of its own: ListOld, ReadBoundary and  *)
(* Advance at once, or these, where Advance has nothing to do, and Delete. *)
(***************************************************************************)
AdvanceAtOnce ==
    /\ Id \in Existing /\ Id # Latest
    /\ Id > boundary
    /\ boundary' = Id
    /\ UNCHANGED <<files, writer, collector, late, acked, staleRead>>

DeleteAtOnce ==
    /\ Id # Latest
    /\ Id <= boundary
    /\ files' = Without(Id)
    /\ UNCHANGED <<boundary, writer, collector, late, acked, staleRead>>

OfCollector ==
    CASE TraceEvent[1] = "advance" /\ Succeeded -> AdvanceAtOnce
      [] TraceEvent[1] = "delete" /\ Id \in Existing -> DeleteAtOnce
      [] OTHER -> Nothing

Observed ==
    \/ Process \in Writers /\ OfWriter(Process)
    \/ Process \in Collectors /\ OfCollector

-----------------------------------------------------------------------------
TraceNext ==
    /\ step <= Len(Traces[which])
    /\ \/ Silent /\ step' = step
       \/ Observed /\ step' = step + 1
    /\ known' = IF files' = files \/ Id \notin Existing' THEN known
                ELSE [known EXCEPT ![Id] = @ \cup {files'[Id]}]
    /\ UNCHANGED which

TraceSpec == TraceInit /\ [][TraceNext]_traceVars

(* Print how far each trace is a run of the model; needs one worker. *)
ASSUME \A trace \in 1..Len(Traces) : TLCSet(trace, 0)
Progress ==
    IF step > TLCGet(which) THEN TLCSet(which, step) /\ PrintT(<<"reached", which, step>>) ELSE TRUE
=============================================================================
