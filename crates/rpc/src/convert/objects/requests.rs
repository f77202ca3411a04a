//! Requests about objects.

use env::calls::objects::{
    GetHeads, GetPrevious, GetTips, GetVersions, ListObjects, ObjectsRequest, PutObjects,
};
use version::Durability;

use super::{all_objects, check_batch, check_request, given, object, owner};
use crate::convert::{Open, Wrong, copied};
use crate::proto;
use crate::proto::objects_request::Request as Wire;

impl Open<ObjectsRequest> for proto::ObjectsRequest {
    fn open(self) -> Result<ObjectsRequest, Wrong> {
        let request = match self.request.ok_or(Wrong("no known request about objects"))? {
            Wire::Put(put) => ObjectsRequest::Put(put.open()?),
            Wire::Get(get) => ObjectsRequest::Get(get.open()?),
            Wire::Previous(previous) => ObjectsRequest::Previous(previous.open()?),
            Wire::Tips(tips) => ObjectsRequest::Tips(GetTips {
                objects: all_objects(&tips.objects)?,
                reader: given(tips.reader),
            }),
            Wire::Heads(heads) => ObjectsRequest::Heads(GetHeads {
                owner: owner(&heads.owner)?,
                object: object(&heads.object)?,
                branch: heads.branch,
                reader: given(heads.reader),
            }),
            Wire::List(list) => ObjectsRequest::List(ListObjects {
                owner: owner(&list.owner)?,
                prefix: list.prefix,
                after: list.after,
                most: list.most,
                reader: given(list.reader),
            }),
        };
        check_request(&request)?;
        Ok(request)
    }
}

impl From<ObjectsRequest> for proto::ObjectsRequest {
    fn from(request: ObjectsRequest) -> Self {
        let request = match request {
            ObjectsRequest::Put(put) => Some(Wire::Put(put.into())),
            ObjectsRequest::Get(get) => Some(Wire::Get(get.into())),
            ObjectsRequest::Previous(previous) => Some(Wire::Previous(previous.into())),
            ObjectsRequest::Tips(tips) => Some(Wire::Tips(proto::GetTips {
                objects: tips.objects.iter().map(|one| copied(one.as_bytes())).collect(),
                reader: tips.reader.unwrap_or_default(),
            })),
            ObjectsRequest::Heads(heads) => Some(Wire::Heads(proto::GetHeads {
                owner: copied(heads.owner.as_bytes()),
                object: copied(heads.object.as_bytes()),
                branch: heads.branch,
                reader: heads.reader.unwrap_or_default(),
            })),
            ObjectsRequest::List(list) => Some(Wire::List(proto::ListObjects {
                owner: copied(list.owner.as_bytes()),
                prefix: list.prefix,
                after: list.after,
                most: list.most,
                reader: list.reader.unwrap_or_default(),
            })),
            // A later kind, which `check_request` refuses before it comes here.
            _ => None,
        };
        Self { request }
    }
}

impl Open<PutObjects> for proto::PutObjects {
    fn open(self) -> Result<PutObjects, Wrong> {
        check_batch(self.records.len())?;
        let durability = |number: u32| {
            let known = u8::try_from(number).ok().and_then(Durability::from_number);
            known.ok_or(Wrong("durability is none of 0 to 3"))
        };
        Ok(PutObjects {
            durability: self.durability.map(durability).transpose()?,
            records: self.records.into_iter().map(Open::open).collect::<Result<_, _>>()?,
            compress: self.compress,
            receipt: self.receipt,
        })
    }
}

impl From<PutObjects> for proto::PutObjects {
    fn from(put: PutObjects) -> Self {
        Self {
            records: put.records.into_iter().map(Into::into).collect(),
            compress: put.compress,
            durability: put.durability.map(|one| one.number().into()),
            receipt: put.receipt,
        }
    }
}

impl Open<GetVersions> for proto::GetVersions {
    fn open(self) -> Result<GetVersions, Wrong> {
        check_batch(self.versions.len())?;
        Ok(GetVersions {
            versions: self.versions.into_iter().map(Open::open).collect::<Result<_, _>>()?,
            attested: self.attested,
            reader: given(self.reader),
        })
    }
}

impl From<GetVersions> for proto::GetVersions {
    fn from(get: GetVersions) -> Self {
        Self {
            versions: get.versions.into_iter().map(Into::into).collect(),
            attested: get.attested,
            reader: get.reader.unwrap_or_default(),
        }
    }
}

impl Open<GetPrevious> for proto::GetPrevious {
    fn open(self) -> Result<GetPrevious, Wrong> {
        let version = self.version.ok_or(Wrong("version is missing"))?.open()?;
        Ok(GetPrevious { version, most: self.most, reader: given(self.reader) })
    }
}

impl From<GetPrevious> for proto::GetPrevious {
    fn from(previous: GetPrevious) -> Self {
        Self {
            version: Some(previous.version.into()),
            most: previous.most,
            reader: previous.reader.unwrap_or_default(),
        }
    }
}
