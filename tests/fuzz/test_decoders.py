"""Every module that decodes bytes or text of others is fuzzed, or says why it is not."""

import pytest

from tests.fuzz.decoders import decoding_modules
from tests.fuzz.targets import all_targets

_CALLS_OTHERS = "calls decoders that are fuzzed"
_OWN_OPTIONS = "takes an argument of the program that embeds Shale, or an option of its command line"
_OWN_JOB = "reads what the driver of the same job, or one of its executors, sent by way of Spark"
NOT_FUZZED = {
    "shale.admin.verify.database": _CALLS_OTHERS,
    "shale.backup.names": "names of the backup store, by an anchored pattern",
    "shale.codecs.codec": "the interface of codecs",
    "shale.compat.slatedb.handles": _OWN_OPTIONS,
    "shale.compat.slatedb.settings.durations": _OWN_OPTIONS,
    "shale.compat.slatedb.settings.settings": _OWN_OPTIONS,
    "shale.compat.slatedb.store": _OWN_OPTIONS,
    "shale.engine.arrow.rows": _OWN_OPTIONS,
    "shale.engine.open_options": _OWN_OPTIONS,
    "shale.engine.wal.feed.seq_span": "eight bytes of an index that is fuzzed",
    "shale.format.sst.wal_index": "unpacks and decodes with what the targets of sections and of the index fuzz",
    "shale.engine.warm": _OWN_OPTIONS,
    "shale.format.blocks.transform": "the interface of transformers",
    "shale.format.manifest_image": "reads what the kernel of the writer has written",
    "shale.protocol.checkpoints": _OWN_OPTIONS,
    "shale.protocol.versioned_store": _CALLS_OTHERS,
    "shale.service.config.spark_section": "a validator of the settings that are fuzzed as files",
    "shale.store.cloud_store.client": _OWN_OPTIONS,
    "shale.store.environment": _OWN_OPTIONS,
    "shale.store.transactional.connect": _OWN_OPTIONS,
    "shale.store.transactional.dynamodb": _OWN_OPTIONS,
    "shale.store.transactional.mysql": _OWN_OPTIONS,
    "shale_cli.commands.clone.sources": _OWN_OPTIONS,
    "shale_cli.commands.compaction.simulated_load": _OWN_OPTIONS,
    "shale_cli.commands.debug.bundle.redaction": "text to text, with tests of its own",
    "shale_cli.commands.gc.app": _CALLS_OTHERS,
    "shale_cli.commands.kv.row_export": _CALLS_OTHERS,
    "shale_cli.framework.app": _OWN_OPTIONS,
    "shale_cli.framework.session": _OWN_OPTIONS,
    "shale_spark.cluster_check": _OWN_JOB,
    "shale_spark.codecs.codec": "the interface of codecs",
    "shale_spark.codecs.json_codec": "columns of Spark's own JSON reader",
    "shale_spark.codecs.plain_codecs": "columns by Arrow's casts",
    "shale_spark.codecs.row_codecs": "columns by the readers of Arrow and Avro",
    "shale_spark.scrub": _OWN_JOB,
    "shale_spark.source.read_plan": _OWN_JOB,
}
"""Modules without a target, each with the reason."""


def _fuzzed() -> set[str]:
    return {module for target in all_targets() for module in target.modules}


def test_every_decoding_module_has_a_target_or_a_reason() -> None:
    missing = {
        name: sign for name, sign in decoding_modules().items() if name not in _fuzzed() and name not in NOT_FUZZED
    }
    assert missing == {}, "add a target to tests/fuzz/targets, or a reason to NOT_FUZZED"


def test_no_reason_is_out_of_date() -> None:
    assert NOT_FUZZED.keys() & _fuzzed() == set()
    assert NOT_FUZZED.keys() - decoding_modules().keys() == set()


@pytest.mark.slow
def test_targets_have_names_of_their_own_seeds_and_modules() -> None:
    targets = all_targets()
    assert len({target.name for target in targets}) == len(targets)
    for target in targets:
        assert target.modules, target.name
        assert target.seeds(), target.name


@pytest.mark.slow
def test_no_seed_is_a_finding() -> None:
    """What no file or request of a program does."""
    from tests.fuzz.worker import outcome

    for target in all_targets():
        for seed in list(target.seeds())[:2]:
            assert outcome(target, seed) is None, target.name
