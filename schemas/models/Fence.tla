------------------------------- MODULE Fence --------------------------------
(***************************************************************************)
(* The epoch in the manifest and the fence in the WAL: how a new writer    *)
(* stops an old one that may not know it.                                  *)
(*                                                                         *)
(* Source: docs/reference/protocol.md 4.1 to 4.9 and 8.5.                  *)
(* docs/concepts/models.md says what is modelled and what is left out.     *)
(***************************************************************************)
EXTENDS Naturals, FiniteSets

CONSTANTS
    Writers,         \* processes that open the database once each
    MaxSlot,         \* the highest id of a WAL file
    MaxRows,         \* rows that a writer writes, each in a WAL file of its own
    CollectsFences,  \* whether the collector deletes fences
    Mutation         \* the defect of this run, or "none"

VARIABLES
    manifest,        \* the newest manifest: epoch, replayAfter, flushed rows
    committer,       \* the epoch of the process that wrote it
    wal,             \* the rows in each WAL file that exists, by slot; none in a fence
    writer,          \* the state of each writer
    acked            \* rows that were acknowledged as durable

vars == <<manifest, committer, wal, writer, acked>>

Slots == 1..MaxSlot
Present == DOMAIN wal
WithFile(slot, rows) == [s \in Present \cup {slot} |-> IF s = slot THEN rows ELSE wal[s]]
WithoutFile(slot) == [s \in Present \ {slot} |-> wal[s]]

(* The last slot up to which no file is missing. *)
Frontier(after) ==
    CHOOSE s \in after..(MaxSlot + after) :
        /\ s + 1 \notin Present
        /\ \A between \in (after + 1)..s : between \in Present

(***************************************************************************)
(* A writer's `state`, in order: "down", "loaded" the manifest, "probed"   *)
(* the end of the WAL, "claimed" the epoch, "blocked" at a taken slot,     *)
(* "sealed" the WAL, "replaying", "serving", "appended" a file; at the end *)
(* "stopped" (fenced) or "broken" (a file was missing).                    *)
(*   view      the manifest that it knows                                  *)
(*   slot      where its next file, or its fence, goes                     *)
(*   consumed  the last WAL file whose rows are in its memory              *)
(*   new       slots that were used since it last saw its own epoch        *)
(*   isLate    whether one of those files is deleted: min_age has passed   *)
(***************************************************************************)
NewWriter(first) == [state |-> "down", view |-> first, epoch |-> 0, slot |-> 0, consumed |-> 0,
                     fence |-> 0, memory |-> {}, count |-> 0, new |-> {}, isLate |-> FALSE]

Row(w) == <<w, writer[w].count>>

Init ==
    LET first == [epoch |-> 0, replayAfter |-> 0, flushed |-> {}] IN
    /\ manifest = first
    /\ committer = 0
    /\ wal = [s \in {} |-> {}]
    /\ writer = [w \in Writers |-> NewWriter(first)]
    /\ acked = {}

(* Every writer notes the files of others that appear after its last proof of being the owner. *)
Noted(states, slot) == [w \in Writers |-> [states[w] EXCEPT !.new =
    IF states[w].state \in {"down", "stopped", "broken"} THEN {} ELSE @ \cup {slot}]]

(* A stopped writer acknowledges nothing.  Its last request may still be on its way to `slot`. *)
AsStopped(w) == [NewWriter(manifest) EXCEPT !.state = "stopped", !.epoch = writer[w].epoch,
                    !.count = writer[w].count,
                    !.slot = IF writer[w].state = "serving" THEN writer[w].slot ELSE 0]

(* The state after reading the newest manifest: it proves the epoch, or stops the writer. *)
Refreshed(w) ==
    IF manifest.epoch > writer[w].epoch THEN AsStopped(w)
    ELSE [writer[w] EXCEPT !.view = manifest, !.new = {}, !.isLate = FALSE]

Become(w, state) == writer' = [writer EXCEPT ![w] = state]

-----------------------------------------------------------------------------
(* Opening. *)

Load(w) ==
    /\ writer[w].state = "down"
    /\ Become(w, [writer[w] EXCEPT !.state = "loaded", !.view = manifest])
    /\ UNCHANGED <<manifest, committer, wal, acked>>

Probe(w) ==
    /\ writer[w].state = "loaded"
    /\ Become(w, [writer[w] EXCEPT !.state = "probed", !.slot = Frontier(writer[w].view.replayAfter) + 1])
    /\ UNCHANGED <<manifest, committer, wal, acked>>

Claim(w) ==
    LET claimed == [manifest EXCEPT !.epoch = @ + 1] IN
    /\ writer[w].state = "probed"
    /\ IF writer[w].view = manifest
       THEN /\ manifest' = claimed
            /\ committer' = claimed.epoch
            /\ Become(w, [writer[w] EXCEPT !.state =
                              IF Mutation \in {"no fence", "fence before claim"} THEN "sealed" ELSE "claimed",
                          !.fence = CASE Mutation = "no fence" -> writer[w].slot - 1
                                      [] OTHER -> writer[w].fence,
                          !.view = claimed, !.epoch = claimed.epoch, !.new = {}, !.isLate = FALSE])
       ELSE /\ Become(w, [writer[w] EXCEPT !.view = manifest])
            /\ UNCHANGED <<manifest, committer>>
    /\ UNCHANGED <<wal, acked>>

(* The old writer flushed between the probe and the claim, so the slot may be free again. *)
IsBehind(w) == writer[w].slot <= writer[w].view.replayAfter /\ Mutation # "old probe is kept"

ProbeAgain(w) ==
    /\ writer[w].state = "claimed"
    /\ IsBehind(w)
    /\ LET slot == Frontier(writer[w].view.replayAfter) + 1
       IN Become(w, IF manifest.epoch > writer[w].epoch THEN AsStopped(w)
                    ELSE [Refreshed(w) EXCEPT !.slot = slot])
    /\ UNCHANGED <<manifest, committer, wal, acked>>

PutFence(w) ==
    LET slot == writer[w].slot IN
    /\ \/ writer[w].state = "claimed" /\ ~IsBehind(w)
       \/ writer[w].state = "probed" /\ Mutation = "fence before claim" /\ writer[w].fence = 0
    /\ slot \in Slots
    /\ IF slot \in Present
       THEN /\ Become(w, [writer[w] EXCEPT !.state = "blocked"])
            /\ UNCHANGED wal
       ELSE /\ wal' = WithFile(slot, {})
            /\ writer' = Noted([writer EXCEPT ![w] = [@ EXCEPT !.fence = slot,
                                    !.state = IF @ = "claimed" THEN "sealed" ELSE @]], slot)
    /\ UNCHANGED <<manifest, committer, acked>>

(* If the epoch is still its own, an older writer took the slot; its rows are replayed. *)
Unblock(w) ==
    /\ writer[w].state = "blocked"
    /\ IF manifest.epoch > writer[w].epoch /\ Mutation # "no refresh at a taken slot"
       THEN Become(w, AsStopped(w))
       ELSE Become(w, [(IF Mutation = "no refresh at a taken slot" THEN writer[w] ELSE Refreshed(w))
                       EXCEPT !.state = "claimed", !.slot = @ + 1])
    /\ UNCHANGED <<manifest, committer, wal, acked>>

Confirm(w) ==
    /\ writer[w].state = "sealed"
    /\ IF manifest.epoch > writer[w].epoch /\ Mutation # "no refresh after the fence"
       THEN Become(w, AsStopped(w))
       ELSE Become(w, [(IF Mutation = "no refresh after the fence" THEN writer[w] ELSE Refreshed(w))
                       EXCEPT !.state = "replaying", !.consumed = writer[w].view.replayAfter])
    /\ UNCHANGED <<manifest, committer, wal, acked>>

Replay(w) ==
    LET next == writer[w].consumed + 1 IN
    /\ writer[w].state = "replaying"
    /\ IF writer[w].consumed >= writer[w].fence
       THEN Become(w, [writer[w] EXCEPT !.state = "serving", !.slot = writer[w].fence + 1])
       ELSE IF next \in Present
       THEN Become(w, [writer[w] EXCEPT !.consumed = next, !.memory = @ \cup wal[next]])
       ELSE Become(w, IF manifest.epoch > writer[w].epoch THEN AsStopped(w)
                      ELSE [writer[w] EXCEPT !.state = "broken"])
    /\ UNCHANGED <<manifest, committer, wal, acked>>

-----------------------------------------------------------------------------
(* Serving: one WAL file in flight; the manifest is written when memory is flushed. *)

Append(w) ==
    LET slot == writer[w].slot IN
    /\ writer[w].state = "serving"
    /\ writer[w].count < MaxRows
    /\ slot \in Slots
    /\ IF slot \in Present /\ Mutation # "files are overwritten"
       THEN /\ Become(w, [AsStopped(w) EXCEPT !.slot = 0])
            /\ UNCHANGED wal
       ELSE /\ wal' = WithFile(slot, {Row(w)})
            /\ writer' = Noted([writer EXCEPT ![w].state = "appended"], slot)
    /\ UNCHANGED <<manifest, committer, acked>>

Arrive(w) ==
    LET slot == writer[w].slot IN
    /\ writer[w].state = "stopped"
    /\ slot \in Slots \ Present
    /\ wal' = WithFile(slot, {Row(w)})
    /\ writer' = Noted([writer EXCEPT ![w].slot = 0], slot)
    /\ UNCHANGED <<manifest, committer, acked>>

(* After a stall a newer writer's fence may have been collected, so that its slot was free again. *)
MustProve(w) == writer[w].isLate /\ Mutation # "no refresh after a stall"

Acknowledge(w) ==
    /\ writer[w].state = "appended"
    /\ IF MustProve(w) /\ manifest.epoch > writer[w].epoch
       THEN /\ Become(w, AsStopped(w))
            /\ UNCHANGED acked
       ELSE /\ acked' = acked \cup {Row(w)}
            /\ Become(w, [(IF MustProve(w) THEN Refreshed(w) ELSE writer[w])
                          EXCEPT !.state = "serving", !.memory = @ \cup {Row(w)},
                                 !.consumed = writer[w].slot, !.slot = @ + 1, !.count = @ + 1])
    /\ UNCHANGED <<manifest, committer, wal>>

Poll(w) ==
    /\ writer[w].state \in {"serving", "appended"}
    /\ Become(w, Refreshed(w))
    /\ UNCHANGED <<manifest, committer, wal, acked>>

(* Replay begins after the last file whose rows were all in memory when the flushed rows were frozen. *)
Stamps(w) ==
    IF Mutation = "replayed tables have the stamp of the fence" /\ writer[w].state = "replaying"
    THEN {writer[w].fence} ELSE (writer[w].view.replayAfter + 1)..writer[w].consumed

RowsAfter(stamp) == UNION {wal[slot] : slot \in {s \in Present : s > stamp}}

(* The rows in memory up to `stamp` become an L0; those after it were written since the freeze. *)
Flush(w) ==
    \E stamp \in Stamps(w) :
        LET next == [manifest EXCEPT !.replayAfter = stamp,
                                     !.flushed = @ \cup (writer[w].memory \ RowsAfter(stamp))] IN
        /\ writer[w].state \in {"replaying", "serving", "appended"}
        /\ stamp > writer[w].view.replayAfter
        /\ IF writer[w].view = manifest \/ Mutation = "no epoch check at a conflict"
           THEN /\ manifest' = next
                /\ committer' = writer[w].epoch
                /\ Become(w, [writer[w] EXCEPT !.view = next])
           ELSE /\ Become(w, Refreshed(w))
                /\ UNCHANGED <<manifest, committer>>
        /\ UNCHANGED <<wal, acked>>

-----------------------------------------------------------------------------
(* The collector deletes files that no replay needs, once they are older than min_age. *)

Collect(slot) ==
    LET end == IF Mutation = "files to replay are collected" THEN manifest.replayAfter + 2
               ELSE manifest.replayAfter
    IN
    /\ slot \in Present
    /\ slot < end
    /\ wal[slot] = {} => CollectsFences
    /\ wal' = WithoutFile(slot)
    /\ writer' = [w \in Writers |-> [writer[w] EXCEPT !.isLate = @ \/ slot \in writer[w].new,
                                                     !.new = @ \ {slot}]]
    /\ UNCHANGED <<manifest, committer, acked>>

-----------------------------------------------------------------------------
WriterStep(w) ==
    \/ Load(w) \/ Probe(w) \/ Claim(w) \/ ProbeAgain(w) \/ PutFence(w) \/ Unblock(w) \/ Confirm(w)
    \/ Replay(w) \/ Append(w) \/ Arrive(w) \/ Acknowledge(w) \/ Poll(w) \/ Flush(w)

Next ==
    \/ \E w \in Writers : WriterStep(w)
    \/ \E slot \in Slots : Collect(slot)

Spec == Init /\ [][Next]_vars

-----------------------------------------------------------------------------
(* Every acknowledged row is in an L0, or in a WAL file that the next replay reaches. *)
NoRowIsLost ==
    \A row \in acked :
        \/ row \in manifest.flushed
        \/ \E slot \in Present :
              /\ row \in wal[slot]
              /\ slot > manifest.replayAfter
              /\ \A before \in (manifest.replayAfter + 1)..slot : before \in Present

(* The owner of the newest epoch serves every row that any writer has acknowledged. *)
OwnerServesEveryRow ==
    \A w \in Writers :
        writer[w].state \in {"serving", "appended"} /\ writer[w].epoch = manifest.epoch
            => acked \subseteq writer[w].memory \cup writer[w].view.flushed

(* Only the owner of the newest epoch writes the manifest. *)
OwnerCommits == committer = manifest.epoch

(* No older writer stops the owner. *)
OwnerIsNeverFenced ==
    \A w \in Writers : writer[w].state = "stopped" => writer[w].epoch < manifest.epoch

(* Replay finds every file that it needs. *)
ReplayFindsEveryFile == \A w \in Writers : writer[w].state # "broken"

(* Two writers never serve in one epoch. *)
EpochsAreUnique ==
    \A one, other \in Writers :
        one # other /\ writer[one].epoch = writer[other].epoch => writer[one].epoch = 0

NothingGoesBack ==
    [][/\ manifest'.epoch >= manifest.epoch
       /\ manifest'.replayAfter >= manifest.replayAfter
       /\ manifest.flushed \subseteq manifest'.flushed]_vars
=============================================================================
