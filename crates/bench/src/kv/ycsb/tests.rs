#![allow(clippy::unwrap_used, reason = "tests")]
use super::*;

fn point(side: &'static str, clients: usize, round: usize, rate: f64) -> Point {
    let mut driven = Driven::default();
    driven.reads.add(Duration::from_millis(1));
    driven.updates.add(Duration::from_millis(2));
    driven.wall = Duration::from_secs(1);
    let mut point = Point::of(&driven, (Duration::from_millis(500), Duration::ZERO));
    (point.side, point.clients, point.round) = (side, clients, round);
    (point.value_bytes, point.pipeline, point.requests_a_second) = (1024, 1, rate);
    point
}

#[test]
fn ratios_are_of_the_medians_at_each_number_of_clients() {
    let mut points = Vec::new();
    for clients in [1, 8] {
        for (round, rate) in [10.0, 40.0, 20.0].into_iter().enumerate() {
            points.push(point("door", clients, round, rate * clients as f64));
            points.push(point("redis", clients, round, rate * 2.0));
            points.push(point("redis, everysec", clients, round, rate));
        }
    }
    let mut report = Report::new("kv-ycsb", true);
    conclude(&mut report, &points);
    let ratio = |name: &str| report.ratios[name];
    assert_eq!(ratio("door_to_redis_1024_b_1_at_once_1_clients"), 0.5);
    assert_eq!(ratio("door_to_redis_everysec_1024_b_1_at_once_8_clients"), 8.0);
    assert_eq!(report.ratios.len(), 4, "nothing of what was not measured");
    assert_eq!(report.charts.len(), 4);
    assert!(points[0].line().contains("door") && points[0].side_cores == 0.5);
}

#[test]
fn half_of_the_requests_are_reads_and_every_answer_is_looked_at() {
    let pool = vec![7; POOL_BYTES];
    let mut work = Work::new(&pool, 100, 1000, 1);
    work.until = Some(Instant::now());
    let mut out = Vec::new();
    let asked: Vec<Asked> = (0..10_000).filter_map(|_| work.ask(&mut out)).collect();
    let reads = asked.iter().filter(|asked| asked.read).count();
    assert!((4_700..5_300).contains(&reads), "{reads}");
    assert!(asked.iter().all(|asked| asked.key < 1000));
    let read = Asked { read: true, key: 5 };
    let mut value = vec![7; 100];
    value[..TAG_BYTES].copy_from_slice(&5u64.to_be_bytes());
    work.check(read, Reply::Bytes(Some(&value))).unwrap();
    value[7] = 6;
    assert!(work.check(read, Reply::Bytes(Some(&value))).is_err(), "another key's");
    assert!(work.check(read, Reply::Bytes(None)).is_err(), "nothing");
    assert!(work.check(read, Reply::Line(b"OK")).is_err());
    let update = Asked { read: false, key: 5 };
    work.check(update, Reply::Line(b"OK")).unwrap();
    assert!(work.check(update, Reply::Error(b"MISCONF")).is_err());
}

#[test]
fn each_key_is_set_once_before() {
    let pool = vec![7; POOL_BYTES];
    let mut work = Work::new(&pool, 8, 3, 1);
    work.loading = 0..3;
    let mut out = Vec::new();
    let mut keys = Vec::new();
    while work.goes_on(Instant::now()) {
        keys.extend(work.ask(&mut out).map(|asked| (asked.read, asked.key)));
    }
    assert_eq!(keys, [(false, 0), (false, 1), (false, 2)]);
    assert_eq!(work.ask(&mut out), None);
    assert!(out.starts_with(b"*3\r\n$3\r\nSET\r\n$16\r\nuser000000000000\r\n$8\r\n\0\0\0"));
}
