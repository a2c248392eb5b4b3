------------------------------ MODULE FenceTrace -------------------------------
(***************************************************************************)
(* Requests of real writers and a collector, in the order in which they    *)
(* took effect, as a run of Fence.  An event is a tuple of five: what,     *)
(* process, id, number, rows.                                              *)
(*   "read"    a request that reads the manifest                           *)
(*   "commit"  a new manifest: id is the start of replay, number the       *)
(*             epoch, rows those written so far that are in no L0          *)
(*   "fence"   a new empty WAL file, "append" one with a row, whose number *)
(*             is its place among the files of the process                 *)
(*   "refused" a put of either, because the slot was taken                 *)
(*   "delete"  of a WAL file                                               *)
(*   "ack"     a row was reported as durable                               *)
(* A request that changes nothing may also mean nothing.                   *)
(***************************************************************************)
EXTENDS Fence, Sequences, TLC

CONSTANT Traces   \* each a sequence of events

VARIABLES
    which,        \* the trace
    step          \* its next event

traceVars == <<vars, which, step>>

TraceInit == Init /\ which \in 1..Len(Traces) /\ step = 1

TraceEvent == Traces[which][step]
Process == TraceEvent[2]
Id == TraceEvent[3]
Number == TraceEvent[4]
Unflushed == TraceEvent[5]

Nothing == UNCHANGED vars
SlotIsFree == Id \notin Present

(***************************************************************************)
(* Steps that send no request, or only requests that are not recorded.     *)
(* The end of the WAL may have been seen, and a put been answered, before  *)
(* requests of other processes.                                            *)
(***************************************************************************)
Silent ==
    \/ \E w \in Writers : Probe(w) \/ Acknowledge(w)
    \/ Process \in Writers /\ Replay(Process)

-----------------------------------------------------------------------------
(* Reading the newest manifest takes several requests; any of them may be the one that finds it. *)
OfRead(w) ==
    \/ Nothing
    \/ Load(w) \/ ProbeAgain(w) \/ Unblock(w) \/ Confirm(w) \/ Poll(w)
    \/ (Claim(w) \/ Flush(w)) /\ UNCHANGED manifest

(* A claim whose answer was lost is, for its own writer too, the claim of another one. *)
LostClaim(w) ==
    /\ writer[w].state = "probed"
    /\ manifest' = [manifest EXCEPT !.epoch = @ + 1]
    /\ committer' = manifest'.epoch
    /\ UNCHANGED <<wal, writer, acked>>

OfCommit(w) ==
    /\ \/ Claim(w) /\ manifest' # manifest
       \/ LostClaim(w)
       \/ Flush(w) /\ manifest' # manifest /\ writer[w].epoch = Number
       \/ Nothing /\ writer[w].epoch = Number
    /\ manifest'.epoch = Number /\ manifest'.replayAfter = Id
    /\ manifest'.flushed \cap Unflushed = {}

OfOther == Nothing /\ manifest.epoch = Number /\ manifest.replayAfter = Id

-----------------------------------------------------------------------------
(* A fence whose answer was lost is, for its own writer too, the file of another one. *)
LostFence(w) ==
    /\ writer[w].state = "claimed" /\ writer[w].slot = Id
    /\ wal' = WithFile(Id, {})
    /\ writer' = Noted(writer, Id)
    /\ UNCHANGED <<manifest, committer, acked>>

(* A repeated request may arrive after its file was collected.  No replay reaches the slot. *)
ArriveAgain(rows) ==
    /\ Id < manifest.replayAfter
    /\ wal' = WithFile(Id, rows)
    /\ writer' = Noted(writer, Id)
    /\ UNCHANGED <<manifest, committer, acked>>

OfFence(w) ==
    SlotIsFree /\ ((PutFence(w) /\ writer[w].slot = Id) \/ LostFence(w) \/ ArriveAgain({}))

OfAppend(w) ==
    /\ SlotIsFree
    /\ \/ (Append(w) \/ Arrive(w)) /\ writer[w].slot = Id /\ writer[w].count = Number
       \/ ArriveAgain({<<w, Number>>})

OfRefused(w) == ~SlotIsFree /\ (Nothing \/ ((PutFence(w) \/ Append(w)) /\ writer[w].slot = Id))

OfWriter(w) ==
    CASE TraceEvent[1] = "read" -> OfRead(w)
      [] TraceEvent[1] = "commit" -> OfCommit(w)
      [] TraceEvent[1] = "fence" -> OfFence(w)
      [] TraceEvent[1] = "append" -> OfAppend(w)
      [] TraceEvent[1] = "refused" -> OfRefused(w)
      [] TraceEvent[1] = "ack" -> Nothing /\ <<w, Number>> \in acked
      [] OTHER -> FALSE

OfNoWriter ==
    CASE TraceEvent[1] = "commit" -> OfOther
      [] TraceEvent[1] = "delete" -> IF SlotIsFree THEN Nothing ELSE Collect(Id)
      [] OTHER -> FALSE

Observed == IF Process \in Writers THEN OfWriter(Process) ELSE OfNoWriter

-----------------------------------------------------------------------------
TraceNext ==
    /\ step <= Len(Traces[which])
    /\ \/ Silent /\ step' = step
       \/ Observed /\ step' = step + 1
    /\ UNCHANGED which

TraceSpec == TraceInit /\ [][TraceNext]_traceVars

(* Print how far each trace is a run of the model; needs one worker. *)
ASSUME \A trace \in 1..Len(Traces) : TLCSet(trace, 0)
Progress ==
    IF step > TLCGet(which) THEN TLCSet(which, step) /\ PrintT(<<"reached", which, step>>) ELSE TRUE
=============================================================================
