use std::sync::atomic::AtomicUsize;

use super::*;

#[test]
fn hours_pass_in_order_and_at_once() {
    let told = run(1, |env| async move {
        let order = Arc::new(Mutex::new(Vec::new()));
        let sleeper = |hours: u64| {
            let (env, order) = (env.clone(), order.clone());
            async move {
                env.clock.sleep(Duration::from_secs(hours * 3600)).await;
                lock(&order).push((hours, env.clock.elapsed().as_secs()));
            }
        };
        let tasks: Vec<Task> =
            [3, 1, 2].into_iter().map(|hours| env.tasks.spawn(sleeper(hours).boxed())).collect();
        for task in tasks {
            task.join().await;
        }
        let order = lock(&order);
        order.clone()
    });
    assert_eq!(told, [(1, 3600), (2, 7200), (3, 10_800)]);
}

#[test]
fn a_deadline_drops_the_work() {
    run(1, |env| async move {
        let never = futures::future::pending::<()>();
        let limit = Duration::from_secs(5);
        assert_eq!(env.within(limit, never).await, Err(env::Elapsed(limit)));
        assert_eq!(env.clock.elapsed(), limit);
        assert_eq!(env.cpu(|| 7).await, 7);
    });
}

#[test]
fn a_dropped_task_ends_and_a_detached_one_goes_on() {
    let count = Arc::new(AtomicUsize::new(0));
    let counted = count.clone();
    run(1, |env| async move {
        let work = || {
            let (env, count) = (env.clone(), count.clone());
            async move {
                env.clock.sleep(Duration::from_secs(1)).await;
                count.fetch_add(1, Ordering::SeqCst);
            }
        };
        drop(env.tasks.spawn(work().boxed()));
        env.tasks.spawn(work().boxed()).stop().await;
        env.tasks.spawn(work().boxed()).detach();
        env.clock.sleep(Duration::from_secs(2)).await;
    });
    assert_eq!(counted.load(Ordering::SeqCst), 1);
}

#[test]
fn a_seed_decides_the_randomness() {
    let draw = |seed| run(seed, |env| async move { (env.random::<40>(), env.random::<8>()) });
    assert_eq!(draw(1), draw(1));
    assert_ne!(draw(1), draw(2));
}

#[test]
#[should_panic(expected = "stuck")]
fn waiting_for_nothing_is_told() {
    run(1, |_| futures::future::pending::<()>());
}

#[test]
fn a_clock_is_moved_by_hand() {
    let clock = VirtualClock::new();
    let mut sleep = clock.sleep(Duration::from_secs(10));
    clock.advance(Duration::from_secs(9));
    assert!((&mut sleep).now_or_never().is_none());
    clock.advance(Duration::from_secs(1));
    assert!(sleep.now_or_never().is_some());
    assert_eq!(clock.unix_s(), START_UNIX_S + 10);
}
