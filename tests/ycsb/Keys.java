package holdfast;

import java.util.HashMap;
import java.util.Map;
import java.util.Set;
import java.util.Vector;
import redis.clients.jedis.Jedis;
import site.ycsb.ByteIterator;
import site.ycsb.DB;
import site.ycsb.Status;
import site.ycsb.StringByteIterator;

/**
 * YCSB's records in Redis's commands: a record is a hash, and a sorted set has every key by a number
 * made of it, so that scans have an order. YCSB's own binding asks the same, and is not in the
 * registry that its client is in.
 */
public class Keys extends DB {
  private static final String INDEX = "_indices";
  private Jedis redis;

  @Override
  public void init() {
    redis = new Jedis(
        getProperties().getProperty("redis.host", "127.0.0.1"),
        Integer.parseInt(getProperties().getProperty("redis.port", "6379")),
        60_000);
  }

  @Override
  public void cleanup() {
    redis.close();
  }

  private static double order(String key) {
    return key.hashCode();
  }

  private static Status wanted(boolean done) {
    return done ? Status.OK : Status.ERROR;
  }

  @Override
  public Status read(String table, String key, Set<String> fields, Map<String, ByteIterator> to) {
    if (fields == null) {
      StringByteIterator.putAllAsByteIterators(to, redis.hgetAll(key));
    } else {
      String[] names = fields.toArray(new String[0]);
      int at = 0;
      for (String value : redis.hmget(key, names)) {
        if (value == null) {
          return Status.NOT_FOUND;
        }
        to.put(names[at++], new StringByteIterator(value));
      }
    }
    return to.isEmpty() ? Status.NOT_FOUND : Status.OK;
  }

  @Override
  public Status insert(String table, String key, Map<String, ByteIterator> values) {
    if (!"OK".equals(redis.hmset(key, StringByteIterator.getStringMap(values)))) {
      return Status.ERROR;
    }
    redis.zadd(INDEX, order(key), key);
    return Status.OK;
  }

  @Override
  public Status update(String table, String key, Map<String, ByteIterator> values) {
    return wanted("OK".equals(redis.hmset(key, StringByteIterator.getStringMap(values))));
  }

  @Override
  public Status delete(String table, String key) {
    return wanted(redis.del(key) == 1 && redis.zrem(INDEX, key) == 1);
  }

  @Override
  public Status scan(String table, String start, int count, Set<String> fields,
      Vector<HashMap<String, ByteIterator>> to) {
    for (String key : redis.zrangeByScore(INDEX, order(start), Double.POSITIVE_INFINITY, 0, count)) {
      HashMap<String, ByteIterator> record = new HashMap<>();
      Status status = read(table, key, fields, record);
      if (status != Status.OK) {
        return status;
      }
      to.add(record);
    }
    return wanted(!to.isEmpty());
  }
}
