-- One row per use of a model. A use whose insert was repeated leaves rows with the same id; the engine drops all but
-- one when it merges parts, and the view `usage` does so for every reader before that.
CREATE TABLE IF NOT EXISTS credits
(
    id           String COMMENT 'Id of the usage event: the same use, however often it was delivered',
    topic        LowCardinality(String) COMMENT 'Where the event was read first',
    `partition`  UInt32,
    `offset`     UInt64,
    at           DateTime64(3, 'UTC') COMMENT 'When the model was used; decides month and price',
    user_id      String COMMENT 'Empty: signed out',
    chat_id      String,
    character    String COMMENT 'Empty: none',
    model        LowCardinality(String),
    stage        LowCardinality(String) COMMENT 'reply, or the kind of memory work: chunk, merge, compress',
    tokens_in    UInt64,
    tokens_out   UInt64,
    credits      Decimal(18, 6),
    booked_at    DateTime64(3, 'UTC') COMMENT 'When the row was inserted',
    -- the row with the greatest rank stays: the first booking, so that a price changed in between never alters a sum
    booking_rank UInt64 MATERIALIZED toUInt64(9000000000000000 - toUnixTimestamp64Milli(booked_at)),
    -- almost every lookup is for ids that are not there: this tells so without reading the ids of every part
    INDEX known_ids id TYPE bloom_filter(0.00001) GRANULARITY 1
)
ENGINE = ReplacingMergeTree(booking_rank)
PARTITION BY toYYYYMM(at)
ORDER BY id
COMMENT 'Uses of models as inserted, before duplicates are merged away; read the view usage';

-- Months are deduplicated apart, so that a query over a span of time reads its months only; that no use is in two
-- months is the ledger's work (services/credits/ledger.py), and `afterturn audit` checks it.
CREATE OR REPLACE VIEW usage AS
SELECT
    id, topic, `partition`, `offset`, at, user_id, chat_id, character, model, stage,
    tokens_in, tokens_out, credits, booked_at
FROM credits FINAL
SETTINGS do_not_merge_across_partitions_select_final = 1;
