// Uses the client that @hey-api/openapi-ts generates; prints what it sees as JSON.
import { client } from './generated/client.gen.js';
import { commitTxn, deleteRow, getRow, putRow, scanPage, writeBatch } from './generated/sdk.gen.js';
import type { PutOp, ScanRequest } from './generated/types.gen.js';

const b64 = (text: string) => Buffer.from(text).toString('base64');
const text = (data: string) => Buffer.from(data, 'base64').toString();
const put = (key: string, value: string): PutOp => ({ op: 'put', key: b64(key), value: b64(value) });

const [url, token] = process.argv.slice(2);
client.setConfig({ baseUrl: url, auth: () => token });

const seen: Record<string, unknown> = {};
const key = 'a/ü 1';
seen.put = (await putRow({ path: { key }, body: new Blob(['one']) })).response?.status;
const row = await getRow({ path: { key } });
seen.get = await row.data?.text();
const batch = await writeBatch({
    body: { ops: [{ ...put('b', '2'), ttl_ms: 3_600_000 }, put('c', '3'), { op: 'delete', key: b64('none') }] },
});
seen.batch = batch.data?.rows;
const txn = await commitTxn({
    body: {
        compare: [{ check: 'value', key: b64('b'), value: b64('2') }, { check: 'absent', key: b64('q') }],
        ops: [put('b', '22')],
    },
});
seen.txn = txn.data?.rows;
const failed = await commitTxn({ body: { compare: [{ check: 'absent', key: b64('b') }] } });
seen.failed = [failed.error?.status, failed.error?.failed];
const rows: string[][] = [];
let body: ScanRequest = { limit: 2 };
for (;;) {
    const page = (await scanPage({ body, throwOnError: true })).data;
    rows.push(...page.rows.map((each) => [text(each.key), text(each.value)]));
    if (page.resume === null) break;
    body = { limit: 2, resume: page.resume };
}
seen.scan = rows;
seen.delete = (await deleteRow({ path: { key: 'b' } })).response?.status;
seen.absent = (await getRow({ path: { key: 'b' } })).response?.status;
console.log(JSON.stringify(seen));
