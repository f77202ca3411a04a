//! Turns: who gets one when, and where the window goes.
#![allow(clippy::unwrap_used, reason = "tests")]

use futures::FutureExt;
use testkit::time::run;

use super::*;

const MIB: usize = 1 << 20;

fn window(line: &Line) -> usize {
    line.sent.lock().window
}

fn peer(number: usize) -> PeerId {
    PeerId::from(testkit::network::key("peer", number).public())
}

fn fresh(env: Env) -> Line {
    Line::new(env, 4 * MIB, 4 * MIB)
}

/// A call to a peer of twelve that moves its bytes in so much time.
async fn call(line: &Line, number: usize, bytes: usize, took: Duration) {
    let turn = line.turn(Load::sent(bytes)).await;
    line.env.clock.sleep(took).await;
    turn.ended(Moved::Yes, &peer(number % 12), 12);
}

async fn calls(line: &Line, count: usize, bytes: usize, took: Duration) {
    futures::future::join_all((0..count).map(|number| call(line, number, bytes, took))).await;
}

#[test]
fn turns_come_in_order_as_there_is_room_and_small_calls_wait_for_none() {
    run(1, |env| async move {
        let line = fresh(env);
        let first = line.turn_now(Load::sent(3 * MIB)).unwrap();
        let mut large = line.turn(Load::sent(2 * MIB)).boxed();
        assert!((&mut large).now_or_never().is_none(), "2 of the 1 MiB left");
        let mut next = line.turn(Load::sent(MIB)).boxed();
        assert!((&mut next).now_or_never().is_none(), "it would fit and is not the first");
        assert!(line.turn_now(Load::sent(MIB)).is_none());
        assert!(line.turn_now(Load::sent(1_000)).is_some());
        assert!(line.turn_now(Load::little()).is_some());
        assert!(line.turn_now(Load::taken(4 * MIB)).is_some(), "the other way");
        drop(first);
        assert!(large.now_or_never().is_some() && next.now_or_never().is_some());
        assert_eq!(line.sent.lock().bytes, 0);
        assert!(line.turn_now(Load::sent(64 * MIB)).is_some(), "alone anything may go");
    });
}

#[test]
fn whoever_leaves_takes_nothing_along() {
    run(1, |env| async move {
        let line = fresh(env);
        let first = line.turn_now(Load::sent(4 * MIB)).unwrap();
        let mut left = line.turn(Load::sent(4 * MIB)).boxed();
        let mut granted = line.turn(Load::sent(MIB)).boxed();
        assert!((&mut left).now_or_never().is_none());
        assert!((&mut granted).now_or_never().is_none());
        drop(left);
        drop(first);
        // It has its turn by now, and leaves before it looks.
        assert_eq!(line.sent.lock().bytes, MIB);
        drop(granted);
        assert_eq!(line.sent.lock().bytes, 0);
        assert!(line.sent.lock().waiting.is_empty());
    });
}

#[test]
fn a_quick_line_is_soon_without_a_bound_and_one_that_is_not_used_stays_as_it_is() {
    run(1, |env| async move {
        let line = fresh(env);
        calls(&line, 3, MIB, Duration::from_millis(20)).await;
        calls(&line, 3, MIB, Duration::from_millis(20)).await;
        assert_eq!(window(&line), 4 * MIB, "nobody waited");
        let since = line.env.clock.elapsed();
        calls(&line, 256, MIB, Duration::from_millis(20)).await;
        assert!(window(&line) >= 256 * MIB);
        assert!(line.env.clock.elapsed() - since <= Duration::from_millis(120));
        assert!(line.patience().is_zero());
    });
}

#[test]
fn the_window_of_a_slow_line_is_what_it_moves_in_a_turn_and_deadlines_follow() {
    run(1, |env| async move {
        let line = fresh(env);
        let first = line.turn_now(Load::sent(MIB)).unwrap();
        assert!(first.limit() > limit(MIB) + Duration::from_secs(10), "nothing is known");
        drop(first);
        // Four at once take 8 s: 0.5 MiB a second.
        calls(&line, 4, MIB, Duration::from_secs(8)).await;
        assert_eq!(window(&line), MIB);
        assert_eq!(line.patience(), Duration::from_secs(32));
        calls(&line, 6, MIB, Duration::from_secs(2)).await;
        assert_eq!(window(&line), MIB, "that is just right");
        let turn = line.turn_now(Load::sent(MIB)).unwrap();
        assert_eq!(turn.limit(), limit(MIB) + TURN * PATIENCE);
        let least = line.turn_now(Load::little().at_most(Duration::from_secs(2))).unwrap();
        assert_eq!(least.limit(), Duration::from_secs(2));
        drop(turn);
        // It is quick again.
        calls(&line, 64, MIB, Duration::from_millis(100)).await;
        assert!(window(&line) >= 16 * MIB, "{}", window(&line));
        assert!(line.patience().is_zero());
    });
}

#[test]
fn calls_that_began_before_the_window_changed_do_not_change_it_again() {
    run(1, |env| async move {
        let line = fresh(env);
        line.sent.lock().window = 16 * MIB;
        // All sixteen began in the wide window.
        let all = (0..16).map(|n| call(&line, n, MIB, Duration::from_millis(8_000)));
        futures::future::join_all(all).await;
        assert_eq!(window(&line), 4 * MIB);
        // Four that began before the change say it again, too late.
        let state = &line.sent;
        let changed = state.lock().changed;
        let before = changed - Duration::from_millis(1);
        (0..4).for_each(|n| state.lock().moved(MIB, before, changed, (peer(n), 12)));
        assert_eq!(window(&line), 4 * MIB);
    });
}

#[test]
fn slow_peers_say_nothing_of_the_line_and_others_do_not_wait_for_them() {
    run(1, |env| async move {
        let line = fresh(env);
        calls(&line, 4, MIB, Duration::from_millis(20)).await;
        let window_before = window(&line);
        // All that is on its way is at two slow peers.
        let slow = (0..8).map(|n| call(&line, n % 2, MIB, Duration::from_secs(9)));
        let others = async {
            line.env.clock.sleep(Duration::from_millis(1)).await;
            let since = line.env.clock.elapsed();
            calls(&line, 64, MIB, Duration::from_millis(20)).await;
            line.env.clock.elapsed() - since
        };
        let (_, took) = futures::join!(futures::future::join_all(slow), others);
        assert!(took < Duration::from_secs(1), "{took:?}");
        for _ in 0..4 {
            let slow = (0..8).map(|n| call(&line, n % 2, MIB, Duration::from_secs(9)));
            futures::future::join_all(slow).await;
        }
        assert!(window(&line) >= window_before);
        assert!(line.patience().is_zero());
    });
}

#[test]
fn of_few_peers_all_are_enough_to_know_a_slow_line() {
    for peers in [1, 2] {
        run(1, |env| async move {
            let line = fresh(env);
            let all = (0..4).map(|n| async move { n % peers });
            futures::future::join_all(all.map(|number| async {
                let turn = line.turn(Load::sent(MIB)).await;
                line.env.clock.sleep(Duration::from_secs(8)).await;
                turn.ended(Moved::Yes, &peer(number.await), peers);
            }))
            .await;
            assert_eq!(window(&line), MIB, "{peers}");
        });
    }
}

#[test]
fn who_holds_turns_and_waits_for_one_more_gets_it() {
    run(1, |env| async move {
        let line = fresh(env);
        let held = line.turn_now(Load::sent(4 * MIB)).unwrap();
        let since = line.env.clock.elapsed();
        let turn = line.turn(Load::sent(MIB)).await;
        let waited = line.env.clock.elapsed() - since;
        assert!(waited >= STANDSTILL_UNKNOWN && waited <= STANDSTILL, "{waited:?}");
        drop((held, turn));
        assert_eq!(line.sent.lock().bytes, 0);
    });
}

#[test]
fn peers_that_hang_make_no_line_slow_and_one_that_was_quick_is_unknown_when_nobody_answers() {
    run(1, |env| async move {
        let line = fresh(env);
        let missed = async |number: usize| {
            let turn = line.turn_now(Load::sent(MIB)).unwrap();
            line.env.clock.sleep(turn.limit()).await;
            turn.ended(Moved::NotInTime, &peer(number), 12);
        };
        missed(0).await;
        let turn = line.turn_now(Load::sent(MIB)).unwrap();
        assert_eq!(turn.limit(), limit(MIB), "it is as patient as on a quick line");
        drop(turn);
        assert_eq!(window(&line), 4 * MIB);
        calls(&line, 64, MIB, Duration::from_millis(20)).await;
        let wide = window(&line);
        // Two that hang beside others that answer.
        futures::join!(missed(1), missed(2), calls(&line, 12, MIB, Duration::from_millis(20)));
        assert_eq!(window(&line), wide);
        line.env.clock.sleep(Duration::from_secs(1)).await;
        // Nobody answers any more.
        futures::join!(missed(3), missed(4), missed(5));
        assert_eq!(window(&line), 4 * MIB);
        let turn = line.turn_now(Load::sent(MIB)).unwrap();
        assert!(turn.limit() > limit(MIB) * 2 && turn.sure_limit() == limit(MIB));
    });
}

#[test]
fn a_dial_that_takes_too_long_says_nothing() {
    run(1, |env| async move {
        let line = fresh(env);
        let turn = line.turn_now(Load::sent(MIB)).unwrap();
        line.env.clock.sleep(turn.limit() / 4).await;
        turn.ended(Moved::NotInTime, &peer(0), 12);
        assert!(line.sent.lock().quick.is_none());
    });
}

#[test]
fn what_a_small_call_took_is_no_measure_of_a_full_window() {
    run(1, |env| async move {
        let line = fresh(env);
        // 64 KiB in 50 ms each: a window of 4 MiB takes 3.2 s.
        calls(&line, 1, LARGE_BYTES, Duration::from_millis(50)).await;
        call(&line, 1, LARGE_BYTES, Duration::from_millis(50)).await;
        assert_eq!(line.sent.lock().quick, Some(Duration::from_millis(50)));
        let all: Vec<Turn> = (0..4).map(|_| line.turn_now(Load::sent(MIB)).unwrap()).collect();
        assert!(all[3].limit() >= limit(MIB) + Duration::from_secs(12));
        assert!(all[3].overdue() <= limit(MIB) / 2 + Duration::from_millis(100));
        let mut next = line.turn(Load::sent(MIB)).boxed();
        for _ in 0..3 {
            line.env.clock.sleep(Duration::from_secs(1)).await;
            assert!((&mut next).now_or_never().is_none(), "they are on their way");
        }
    });
}

#[test]
fn an_old_answer_does_not_hide_that_nobody_answers() {
    run(1, |env| async move {
        let line = fresh(env);
        calls(&line, 64, MIB, Duration::from_millis(20)).await;
        call(&line, 0, LARGE_BYTES, Duration::from_millis(5)).await;
        line.env.clock.sleep(Duration::from_secs(100)).await;
        let turns: Vec<Turn> = (0..3).map(|_| line.turn_now(Load::sent(MIB)).unwrap()).collect();
        line.env.clock.sleep(turns[0].limit()).await;
        for (number, turn) in turns.iter().enumerate() {
            turn.ended(Moved::NotInTime, &peer(number), 12);
        }
        assert!(line.sent.lock().quick.is_none());
        assert_eq!(window(&line), 4 * MIB);
    });
}

#[test]
fn records_of_unknown_size_count_as_those_before() {
    run(1, |env| async move {
        let line = fresh(env);
        assert!(line.some_record().way.is_some());
        (0..40).for_each(|_| line.learn_bytes(1_000));
        let short = line.some_record();
        assert!(short.bytes < MIB / 2 && short.way.is_some(), "a long one may come behind them");
        let turn = line.turn_now(short).unwrap();
        assert!(
            turn.limit() > limit(8 * 2 * MIB),
            "and has time on a line of which nothing is known"
        );
        assert!(turn.overdue() < limit(2 * MIB), "who hangs is not waited for so long");
        drop(turn);
        (0..40).for_each(|_| line.learn_bytes(2 * MIB));
        assert!(line.some_record().bytes > MIB);
    });
}
