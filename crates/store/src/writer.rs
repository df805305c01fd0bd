//! The connection that writes, and the transactions on it.

use std::path::PathBuf;

use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{ConnectOptions, Connection, Sqlite, Transaction};

use crate::error::{Error, Result};
use crate::schema;

#[derive(Debug)]
pub(crate) struct Writer {
    path: PathBuf,
    /// How to connect again.
    options: SqliteConnectOptions,
    connection: SqliteConnection,
    /// The number of changes of the schema at which this connection has ours.
    checked: Option<i64>,
}

impl Writer {
    pub fn new(path: PathBuf, options: SqliteConnectOptions, connection: SqliteConnection) -> Self {
        Writer { path, options, connection, checked: None }
    }

    /// Connects again if this connection can begin nothing more.
    ///
    /// When SQLite ends a transaction by itself, which it does when the disk is
    /// full, sqlx goes on counting it and would never begin another on that
    /// connection.
    pub async fn repair(&mut self) -> sqlx::Result<()> {
        // True also if a transaction was dropped and its end is still in the queue: a ping waits
        // for what is before it.
        if self.connection.is_in_transaction()
            && (self.connection.ping().await.is_err() || self.connection.is_in_transaction())
        {
            self.connection = self.options.connect().await?;
            self.checked = None;
        }
        Ok(())
    }

    /// Begins a transaction that writes, on our schema. Whoever changes the schema
    /// has to wait until it ends.
    pub async fn begin(
        &mut self,
        failed: impl Fn(sqlx::Error) -> Error,
    ) -> Result<Transaction<'_, Sqlite>> {
        let begun = self.connection.begin_with("BEGIN IMMEDIATE").await;
        let mut transaction = begun.map_err(failed)?;
        let changes = schema::changes(&mut transaction).await?;
        if self.checked != Some(changes) {
            // What this connection makes of another schema it may use later, under any number.
            self.checked = None;
            schema::check_newest(&self.path, &mut transaction).await?;
            self.checked = Some(changes);
        }
        Ok(transaction)
    }

    /// The connection outside of a transaction. SQLite may read the schema anew there.
    pub fn connection(&mut self) -> &mut SqliteConnection {
        self.checked = None;
        &mut self.connection
    }

    pub async fn close(self) -> sqlx::Result<()> {
        self.connection.close().await
    }
}
