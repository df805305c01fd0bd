//! Values in places that are used again, known by ids that are not: an id of
//! what went finds nothing, even if its place holds another value by now.

/// A place and which use of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id {
    place: u32,
    use_: u32,
}

impl Id {
    /// As one number, for whoever brings it back.
    pub fn token(self) -> u64 {
        u64::from(self.use_) << 32 | u64::from(self.place)
    }

    pub fn from_token(token: u64) -> Self {
        Id { place: token as u32, use_: (token >> 32) as u32 }
    }

    pub(crate) fn place(self) -> u32 {
        self.place
    }
}

/// Values by their ids.
#[derive(Clone, Debug)]
pub struct Slab<T> {
    places: Vec<(u32, Option<T>)>,
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Slab { places: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slab<T> {
    pub fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    pub fn add(&mut self, value: T) -> Id {
        let place = self.free.pop().unwrap_or_else(|| {
            self.places.push((0, None));
            self.places.len() as u32 - 1
        });
        let (use_, own) = &mut self.places[place as usize];
        *use_ = use_.wrapping_add(1);
        *own = Some(value);
        Id { place, use_: *use_ }
    }

    pub fn get(&self, id: Id) -> Option<&T> {
        let (use_, value) = self.places.get(id.place as usize)?;
        value.as_ref().filter(|_| *use_ == id.use_)
    }

    pub fn get_mut(&mut self, id: Id) -> Option<&mut T> {
        let (use_, value) = self.places.get_mut(id.place as usize)?;
        value.as_mut().filter(|_| *use_ == id.use_)
    }

    pub fn remove(&mut self, id: Id) -> Option<T> {
        self.get(id)?;
        self.free.push(id.place);
        self.places[id.place as usize].1.take()
    }

    /// What is at a place now, whichever use it is.
    pub(crate) fn at(&self, place: u32) -> Option<(Id, &T)> {
        let (use_, value) = self.places.get(place as usize)?;
        value.as_ref().map(|value| (Id { place, use_: *use_ }, value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_ids_find_nothing() {
        let mut slab = Slab::default();
        let (a, b) = (slab.add('a'), slab.add('b'));
        assert_eq!((slab.remove(a), slab.remove(a)), (Some('a'), None));
        let c = slab.add('c');
        assert_eq!(c.place(), a.place());
        assert_eq!((slab.get(a), slab.get(c)), (None, Some(&'c')));
        assert_eq!(slab.get_mut(a), None);
        assert_eq!(Id::from_token(b.token()), b);
        assert_eq!(slab.len(), 2);
        assert_eq!(slab.at(a.place()), Some((c, &'c')));
        assert_eq!(slab.at(9), None);
    }
}
