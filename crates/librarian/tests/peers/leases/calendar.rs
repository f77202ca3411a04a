//! A calendar that is wrong drops nothing that is paid for.

use std::sync::atomic::AtomicU64;

use env::{Clock, Env};
use futures::future::BoxFuture;

use super::*;
use crate::leases::town_with;
use crate::lines::Lines;

const DAY_MS: u64 = 24 * 3600 * 1000;

/// A clock whose calendar is so many milliseconds ahead.
struct Ahead(Arc<dyn Clock>, Arc<AtomicU64>);

impl Clock for Ahead {
    fn unix_ms(&self) -> u64 {
        self.0.unix_ms() + self.1.load(Ordering::SeqCst)
    }

    fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        self.0.sleep(duration)
    }
}

#[test]
fn a_calendar_that_jumps_ahead_ends_no_lease_until_it_is_right_again() {
    testkit::time::run(77, |env| async move {
        let mut town = town_with(&env, 3, |_| {}).await;
        let client = Client::new(&town, 1).await;
        let (long, short) = (page(1, 500), page(2, 500));
        let (kept, ends) =
            (client.lease(&town, &[&long], 20 * 24 * 3600), client.lease(&town, &[&short], 3600));
        let had = town.take_down(2).await;
        let ahead_ms = Arc::new(AtomicU64::new(0));
        let clock = Arc::new(Ahead(env.clock.clone(), Arc::clone(&ahead_ms)));
        let right = std::mem::replace(&mut town.env, Env { clock, ..env.clone() });
        town.bring_back(2, had).await;
        town.env = right;
        let client = Client { calls: Client::new(&town, 1).await.calls, ..client };
        for (record, shown) in [(&long, &kept), (&short, &ends)] {
            client.store(&town, 2, record, vec![shown.clone()]).await.unwrap();
        }
        let lines = Lines::default();
        let logs = tracing::subscriber::set_default(lines.clone());
        env.clock.sleep(Duration::from_secs(300)).await;
        ahead_ms.store(40 * DAY_MS, Ordering::SeqCst);
        env.clock.sleep(Duration::from_secs(3 * 3600)).await;
        assert!(town.stores[2].holds(&long.id) && town.stores[2].holds(&short.id));
        let told = lines.with("the calendar is ahead of what most other organisations say");
        assert!(told.len() == 1 && told[0].contains("ERROR"), "{told:?}");
        drop(logs);
        ahead_ms.store(0, Ordering::SeqCst);
        let ended = |town: &Town| !town.stores[2].holds(&short.id);
        town.until("by the right time leases end", ended).await;
        env.clock.sleep(Duration::from_secs(3600)).await;
        assert!(town.stores[2].holds(&long.id));
    });
}

/// While it is ahead its questions begin where others' words never are.
#[test]
fn words_told_while_the_calendar_was_ahead_are_heard_once_it_is_right_again() {
    testkit::time::run(78, |env| async move {
        let mut town = town_with(&env, 3, |_| {}).await;
        let client = Client::new(&town, 1).await;
        let record = page(1, 500);
        let shown = client.lease(&town, &[&record], 300 * SPAN_S);
        let had = town.take_down(2).await;
        let ahead_ms = Arc::new(AtomicU64::new(0));
        let clock = Arc::new(Ahead(env.clock.clone(), Arc::clone(&ahead_ms)));
        let right = std::mem::replace(&mut town.env, Env { clock, ..env.clone() });
        town.bring_back(2, had).await;
        town.env = right;
        let client = Client { calls: Client::new(&town, 1).await.calls, ..client };
        for peer in 0..3 {
            client.store(&town, peer, &record, vec![shown.clone()]).await.unwrap();
        }
        ahead_ms.store(2 * DAY_MS, Ordering::SeqCst);
        let ahead = |town: &Town| town.peers[2].words_heard_ms() > env.clock.unix_ms() + DAY_MS;
        town.until("it heard all others, by a wrong calendar", ahead).await;
        for peer in 0..2 {
            let word = client.forget(&town, &shown);
            client.ask(&town, peer, LeaseRequest::Forget(vec![word])).await;
        }
        env.clock.sleep(Duration::from_secs(1_500)).await;
        assert!(town.stores[2].holds(&record.id), "it asks for what is yet to come");
        ahead_ms.store(0, Ordering::SeqCst);
        town.until("the word reaches it", |town| !town.stores[2].holds(&record.id)).await;
        assert!(town.peers[2].words_heard_ms() <= env.clock.unix_ms());
    });
}
