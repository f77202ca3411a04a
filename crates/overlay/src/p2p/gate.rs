//! What of a mesh's messages is let in before gossipsub keeps anything of them.
//!
//! Gossipsub remembers every message that passes its transform, of whatever topic, and tells its user only of
//! those on topics it subscribed to: messages on other topics fill its caches and never come to our budgets. So
//! the transform, the first thing it asks, refuses what is not on our topic or not of the form of [`Told`]. Nothing of
//! what is refused is kept, and on our topic it counts against the link as a wrong form does.
//!
//! Only the form is looked at, not the signature: a mesh brings each message several times, and this is done for
//! each of them.

use std::io;

use bytes::Bytes;
use libp2p::gossipsub::{
    DataTransform, IdentTopic, Message, RawMessage, TopicHash, WhitelistSubscriptionFilter,
};

use crate::told::Told;

/// The messages of one topic that have the form of [`Told`]; they are taken as they are.
pub(super) struct Gate {
    topic: TopicHash,
}

impl Gate {
    pub(super) fn new(topic: &IdentTopic) -> Self {
        Self { topic: topic.hash() }
    }

    /// Which subscriptions of others are noted: those to the same topic.
    pub(super) fn subscriptions(&self) -> WhitelistSubscriptionFilter {
        WhitelistSubscriptionFilter([self.topic.clone()].into())
    }
}

impl DataTransform for Gate {
    fn inbound_transform(&self, raw: RawMessage) -> Result<Message, io::Error> {
        // A key beside an unsigned message means nothing, and would be kept and passed on with it.
        if raw.topic != self.topic || raw.key.is_some() {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let data = Bytes::from(raw.data);
        if !Told::has_form(&data) {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let (source, sequence_number, topic) = (raw.source, raw.sequence_number, raw.topic);
        Ok(Message { source, data: data.into(), sequence_number, topic })
    }

    fn outbound_transform(&self, _: &TopicHash, data: Vec<u8>) -> Result<Vec<u8>, io::Error> {
        Ok(data)
    }
}

#[cfg(test)]
mod tests {
    use crypto::{NetworkId, SecretKey};

    use super::*;
    use crate::News;

    fn told() -> Vec<u8> {
        let secret = SecretKey::from_bytes(&[1; 32]).expect("a scalar");
        let news = [News::Envelope(Bytes::from_static(b"x"))];
        Told::encode(&secret, &NetworkId::NONE, &news).expect("small")
    }

    fn raw(topic: &str, data: Vec<u8>) -> RawMessage {
        RawMessage {
            source: None,
            data,
            sequence_number: None,
            topic: IdentTopic::new(topic).hash(),
            signature: None,
            key: None,
            validated: false,
        }
    }

    #[test]
    fn only_our_topic_and_our_form_are_let_in() {
        let gate = Gate::new(&IdentTopic::new("ours"));
        let passed = gate.inbound_transform(raw("ours", told())).expect("its own form");
        assert_eq!(passed.data, told());
        assert!(gate.inbound_transform(raw("another", told())).is_err());
        let cut = told()[..told().len() - 1].to_vec();
        for data in [Vec::new(), b"noise".to_vec(), vec![0; 30_000], cut] {
            assert!(gate.inbound_transform(raw("ours", data)).is_err());
        }
        let keyed = RawMessage { key: Some(vec![7; 1_000]), ..raw("ours", told()) };
        assert!(gate.inbound_transform(keyed).is_err());
    }
}
