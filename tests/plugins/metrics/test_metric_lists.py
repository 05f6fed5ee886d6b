"""A chip's list of metrics, learnt from any ncu or from the library that ncu asks."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from flashcore.chips.metric_tables import lookup
from flashcore.cli.main import main
from flashcore.errors import CapabilityError, Exit, UsageError
from flashcore.measure.machine.capabilities import lacking
from flashcore.plugins.metrics import command, metric_lists, nvperf

#: As ncu prints it, wrapped descriptions and all.
QUERY = """Chip gx100
------------------ --------------- --------------- ----------------------------
Metric Name        Metric Type     Metric Unit     Metric Description
------------------ --------------- --------------- ----------------------------
dram__bytes_read   Counter         byte            # of bytes read from DRAM
                                                   see lts__t_bytes Counter
lts__throughput    Throughput      %               L2 throughput
CTC.Triage.ctc__rx Counter         byte            # of bytes
smsp__x_rate       Ratio                           a ratio without a unit
l2__hit            Ratio           proportion      hits
==PROF== Note that these metrics must be appended with a valid suffix before profiling them.
"""


def test_what_ncu_prints_is_read_and_kept() -> None:
    table = metric_lists.parse_query(QUERY, "gx100")
    assert table.metrics == {
        "dram__bytes_read": "Counter",
        "lts__throughput": "Throughput",
        "CTC.Triage.ctc__rx": "Counter",
        "smsp__x_rate": "Ratio",
        "l2__hit": "Ratio",
    }
    assert metric_lists.packed(table) == metric_lists.packed(table)


def ncu(folder: Path, body: str) -> Path:
    program = folder / "ncu"
    program.write_text(f"#!{sys.executable}\nimport sys\n{body}\n")
    program.chmod(0o755)
    return program


def test_a_table_is_learnt_from_any_ncu(tmp_path: Path) -> None:
    (tmp_path / "answer").write_text(QUERY)
    body = (
        "assert sys.argv[1:] == ['--query-metrics', '--chips', 'gx100'], sys.argv\n"
        f"sys.stdout.write(open({str(tmp_path / 'answer')!r}).read())"
    )
    path = metric_lists.learn("gx100", tmp_path / "new" / "gx100.txt.gz", ncu(tmp_path, body))
    table = lookup.table("gx100", path)
    assert len(table.metrics) == 5
    said = command.as_text(table)
    assert "missing on gx100" in said and said.endswith("by ncu --query-metrics")
    with pytest.raises(UsageError, match="expected the table of gx200, found that of gx100"):
        lookup.table("gx200", path)


@pytest.mark.parametrize(
    "body", ["sys.exit('==ERROR== unknown chip gx100')", "print('')", "sys.exit(1)", "print('garbage __ Counter')"]
)
def test_an_ncu_that_does_not_know_the_chip_is_said(body: str, tmp_path: Path) -> None:
    with pytest.raises(CapabilityError, match="--chips gx100: expected a list of metrics"):
        metric_lists.learn("gx100", tmp_path / "x.txt.gz", ncu(tmp_path, body))
    assert not (tmp_path / "x.txt.gz").exists()


def test_without_ncu_the_library_that_it_asks_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_ncu() -> Path:
        raise CapabilityError("no Nsight Compute", "install it")

    monkeypatch.setattr(metric_lists, "find_ncu", no_ncu)
    monkeypatch.setattr(nvperf, "find", lambda: Path("/lib/libnvperf_host.so"))
    monkeypatch.setattr(nvperf, "metrics", lambda library, chip: {f"{chip}__cycles": "Counter"})
    path = metric_lists.learn("gx100", tmp_path / "gx100.txt.gz")
    table = lookup.table("gx100", path)
    assert table.metrics == {"gx100__cycles": "Counter"}
    assert table.source == "libnvperf_host.so of /lib"

    def no_library() -> Path:
        raise lacking("metric lists")

    monkeypatch.setattr(nvperf, "find", no_library)
    with pytest.raises(CapabilityError, match=r"no Nsight Compute; no libnvperf_host.so found.*\n.*nvidia-cuda-cupti"):
        metric_lists.learn("gx100", tmp_path / "other.txt.gz")


def test_a_table_is_written_only_where_the_user_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(metric_lists, "_listed", lambda chip, _: lookup.Table(chip, {"gx100__cycles": "Counter"}))
    monkeypatch.setattr(metric_lists, "write_atomically", lambda path, _: print(f"wrote {path}"))
    assert main(["metrics", "--learn", "--chip", "gx100"]) == Exit.USAGE
    out, err = capsys.readouterr()
    assert not out and "--learn: expected together with --table FILE" in err
    assert main(["metrics", "--learn", "--chip", "gx100", "--table", str(tmp_path / "own.txt.gz")]) == Exit.OK
    assert capsys.readouterr().out.startswith(f"wrote {tmp_path}/own.txt.gz\n")
