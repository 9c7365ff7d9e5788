"""Sizes and paces that the engine keeps to: what is held in memory at once, and how often the state is tended.

They are facts of the machine and of the algorithms, measured once, not choices of a user: no setting changes them. They
travel with the settings of a join, so that a test can give a join of a few rows as many pieces, parts and merges as
a large one has. Results do not depend on them.
"""

from __future__ import annotations

from dataclasses import dataclass

# A checkpoint can be rolled back this far: the default of Spark's spark.sql.streaming.minBatchesToRetain.
RETAIN_BATCHES = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    # --- What a kernel holds (kernel/pieces.py, kernel/equal.py, kernel/theta.py) --------------------------------

    # Fresh rows that are gathered into one sorted piece: large enough to amortise a pass over the history's
    # runs, small enough that a piece of wide rows (1 KB each) stays within some 500 MB for both inputs.
    piece_rows: int = 262_144
    piece_bytes: int = 64 << 20
    # Slices of the history up to this size are put together before fresh rows meet them: to meet one more slice costs
    # some 70 microseconds, whatever its rows, to put two thousand narrow rows to others about as much.
    small_rows: int = 2_048
    small_bytes: int = 256 << 10
    # Up to this many candidates of a pair of pieces are held and tested with those of other pairs (kernel/few.py): to
    # copy a thousand rows once more costs as much as the calls that it saves, 30 microseconds.
    few_rows: int = 1_024
    # Keys of neighbouring sections that a process keeps in order (log/runs.py): eleven million rows at 12 bytes, as
    # much as two pieces. Sections beyond that are searched one by one.
    merged_bytes: int = 128 << 20
    # Fewer pairs of one key than this are as fast by position as in a block.
    heavy_pairs: int = 16_384
    # Rows of a side that are made ready together where all pairs are tested: what is computed for each of them is then
    # used thousands of times.
    slab_rows: int = 65_536
    # A block's truths, a byte each, stay in the cache, and below the 128 KiB from which malloc asks the system for new
    # pages: with twice as many, page faults took three times as long as comparing. Compared as a matrix, a row of
    # words should stay in the cache too; row by row, a row must be long enough to hide the cost of some calls.
    block_pairs: int = 124 << 10
    matrix_width: int = 8_192

    # --- Result batches (kernel/emit.py) -------------------------------------------------------------------------

    # Rows of one result batch: large enough to hide the cost per batch on the way to the JVM.
    output_rows: int = 65_536
    output_bytes: int = 32 << 20
    # A cross product needs batches of at least this many rows: with fewer, making batches costs more than positions do
    # (at 1,024 rows four times as much), and positions can be cut by the bytes of each pair.
    least_crossed_rows: int = 4_096
    # A side with fewer rows is not tiled: to put 65,536 copies of one row together takes 38 ms.
    least_tiled_rows: int = 256

    # --- Tables (kernel/lookup.py, engine/lookup.py, schemes/table) ----------------------------------------------

    # Pages joined together: a page by itself costs three times as much. More of them gain nothing, and their pages
    # are all held at once.
    joined_pages: int = 64
    joined_bytes: int = 32 << 20
    # Where pages have this many rows, and this many times the rows that wait on them, each page is searched by itself:
    # to put a page's number before every hash would touch all rows.
    searched_page_rows: int = 512
    searched_page_times: int = 4
    # Up to this size a page is copied as a whole: to pick rows from it takes longer (some 60 microseconds).
    whole_page_bytes: int = 512 << 10
    # In a database: a key is looked up by itself where its page has at least this many times as many rows as keys that
    # are sought in it. A page of 1,100 rows costs as much as 140 (SQLite) to 800 (PostgreSQL, rows not in order)
    # look-ups: in between, as it is not known how the rows lie.
    rows_per_lookup: int = 4
    # Keys that are asked for at a time in a database, about.
    lookup_keys: int = 500
    # Reading a page and taking it in hand costs as much as joining this many rows, until it is measured (with a delay,
    # schemes/table/worth.py): 50 microseconds against one.
    page_read_rows: int = 50
    # The sorted copy of files costs as much as reading all of them in place this many times. Of 4M rows of 14 columns
    # (470 MB of Parquet) a batch that reads six, 58% of what comes out, takes 1.9 s of CPU more in place than from the
    # copy: to decode pages and to put their rows in order. The copy takes 6 to 9 s.
    copy_reads: float = 2.5
    # A page is not worth reading for fewer waiting rows. One: where waiting costs more than reading, no row waits.
    least_worth_rows: int = 1

    # --- Bands (schemes/range/cut.py) ----------------------------------------------------------------------------

    # Less work is not shared: reading a share costs about as much as this many rows and pairs, for every run.
    least_cut_work: int = 64

    # --- Merges (plan/merges.py, engine/merge.py) ----------------------------------------------------------------

    # Eight: three tiers take a run 512-fold, and measured look-ups cost less in eight small runs than the rewriting
    # that a fan-in of four adds.
    fan_in: int = 8
    # Runs below this share the lowest tier: merging them costs nothing, however many there are.
    smallest_tier_rows: int = 1024
    # A part of a merge: its rows are held in memory while they are merged.
    part_rows: int = 500_000
    part_bytes: int = 64 << 20
    # Below this a part is not worth a file and a receipt of its own.
    min_part_rows: int = 100_000
    # Below this a sequence is not rewritten for the sake of its expired rows: a merge or its end is near.
    min_rewrite_rows: int = 1024
    # Runs that were merged stay as long as a checkpoint may be rolled back to them (plan/room.py): this
    # many bytes of them for each live byte, so that the state takes 2.5 times its live runs.
    retained_share: float = 1.5
    # Below this an input's runs are merged as soon as a tier is full: the disk is not scarce then.
    least_scarce_bytes: int = 64 << 20
    # A tier with this many sequences is merged in any case: look-ups visit all of them.
    most_tier_sequences: int = 48
    # What a batch may merge at least, so that small batches clear a debt left by a large one.
    min_budget_rows: int = 200_000

    # --- What is owed after the query (plan/debts.py) ------------------------------------------------------------------

    # Rows and results of a share of what is owed, at least: half a second of a core.
    debt_work: int = 2_000_000

    # --- Orders of walks (schemes/delta/scheme.py, kernel/fan_outs.py) ------------------------------------------------

    # Rows that are followed to estimate a fan-out. 512 find a mean within some 5%, unless very few rows make it.
    sampled_rows: int = 512
    # A term with fewer fresh rows is not sampled: the sample would be a large part of its work.
    least_sampled_rows: int = 4096

    # The part of a task's work that it may repeat, because all tasks do the same before a late deal.
    repeated_part: float = 0.1
    # A task must read this much less to be given a part of the keys (schemes/delta/shares.py): about what an object
    # store sends in a second.
    least_saved_bytes: int = 64 << 20

    # --- The log (log/bases.py, log/statistics.py, log/sections.py, log/descriptors.py) ---------------------------

    # A manifest that repeats fewer runs than this needs no base: they are some 10 KB of JSON, and a file more costs a
    # request to write and one to read.
    least_base_runs: int = 128
    # Values of statistics (keys, rows, labels) that a manifest repeats at most, about 4 KB. Above that they get a file.
    inline_values: int = 384
    # Files of statistics that hold fewer values than this are put together when a base is written.
    least_file_values: int = 30_000
    # Checking one more section of a run (log/sections.py) takes four microseconds of calls. In that time this many
    # bytes of its file are checksummed.
    bytes_per_section: int = 32 << 10
    # Bytes that an ingest task sends to all join tasks together, about: more goes into a file, and what is sent is
    # its name. 200 partitions send 3 MB.
    inline_descriptor_bytes: int = 16_384

    # --- Upkeep (engine/operator.py, engine/fingerprint.py) and what runs record (schemes/hypercube/hot_keys.py) ------

    # Listing all runs costs a round trip or two: often enough to bound garbage, seldom enough not to be felt.
    clean_every_batches: int = 16
    # Queries of a state that are read before a start, to see whether the code has changed. Each costs a listing and a
    # read, a tenth of a second on an object store. Folder names are random, so a subset may miss the newest query, and
    # an old one would warn for nothing.
    most_queries: int = 20
    # A run need not list keys of fewer rows: their pairs are soon given out. A key that has as many rows in each of
    # many small runs is found in a sample.
    least_listed_rows: int = 32
    # What a run lists, as shares of its rows: a key's results go with the square of its rows, so a key that gives a
    # task as much to do as all others together may have far less than a task's share of the rows.
    listed_shares: int = 512
    # The most keys that a run lists, the largest ones: lists are part of every manifest, and a key with its rows and
    # its label takes some 50 bytes. A plan finds other hot keys in samples.
    most_listed_keys: int = 256


DEFAULT_LIMITS = Limits()
